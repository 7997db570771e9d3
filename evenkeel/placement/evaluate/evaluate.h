// Judges a placement on the recordings that it was made from, or on others: how level it is over a whole
// recording and in each step, how long a step takes, and how long the move to it takes. verdict.h decides
// whether that pays.
//
// Level       max/mean of the ranks' loads, by the rule with which the server chooses copies. A placement
//             that is even over an hour may be uneven in a step, so each step is judged too.
// Time        a model: the experts of the heaviest rank, layer after layer, by arithmetic alone. It leaves
//             out communication and waiting for weights. The formula is max/mean x assignments of a step /
//             ranks x time of an assignment, summed over layers.
// Move        the experts that a rank holds afterwards and did not before, over the slowest rank's link.
// Cost        loads x placements for each recording, and as much again for each step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/quality.h"
#include "evenkeel/routing/recording.h"

namespace evenkeel {

// Over the steps of a recording: max/mean, averaged over layers with load.
struct StepSpread {
  double mean = 1;
  double median = 1;
  double p95 = 1;  // 95 % of the steps are at or below it
  double worst = 1;
};

struct RecordingJudgement {
  PlacementQuality quality;         // of the whole recording
  std::optional<StepSpread> steps;  // if the recording has steps
};

// `steps` have the same layers and experts as the recording. Throws as placement_quality() does.
RecordingJudgement judge(const RoutingProfile& recording, std::span<const RoutingProfile> steps,
                         const Topology& topology, const ServedPlacement& placement);
inline RecordingJudgement judge(const RoutingProfile& recording, std::span<const RoutingProfile> steps,
                                const Topology& topology, const Placement& placement) {
  return judge(recording, steps, topology, {placement, {placement, topology, Dispatch::even}});
}

// A placement and its name in messages; contiguous homes if `placement` is empty.
struct NamedPlacement {
  std::string name = "contiguous";
  std::optional<Placement> placement = {};
  std::string argument = {};                // the argument that errors name
  std::vector<std::string> made_from = {};  // digests of its recordings, if known (provenance.h)
  Dispatch dispatch = Dispatch::even;

  // The homes of the recording's layers. Throws InvalidArgument if the placement has other layers or experts.
  Placement on(const Recording& recording, int num_ranks) const;
  // As on(), with copy shares by the dispatch rule. The server's draws for layers that were not recorded are
  // made too.
  ServedPlacement served_on(const Recording& recording, const Topology& topology) const;
};

struct JudgedPlacement {
  NamedPlacement placement;
  std::vector<RecordingJudgement> on;  // by recording
  std::vector<double> blocks = {};     // level_of() of each block of all recordings, if there are blocks
};
// JudgedPlacement::blocks is `blocks`; if that is empty, the blocks of the recordings are judged.
JudgedPlacement judge(NamedPlacement placement, std::span<const Recording> recordings,
                      const Topology& topology, std::vector<double> blocks = {});

// max/mean, averaged over layers: the mean over steps if the steps are known, else of the whole recording.
double level_of(const RecordingJudgement& judgement);
// The placement that is most level over all recordings, by step where steps are known; the first in a tie.
const JudgedPlacement& most_level(std::span<const JudgedPlacement> placements);

// The recording with the most layers. Moves are counted on its layers only, since a server's placement may
// also have rows for dense layers.
const Recording& widest(std::span<const Recording> recordings);

// What is known about a step and the machine. Unknown numbers leave answers open.
struct StepModel {
  std::optional<double> assignment_us = {};         // time of one assignment on one rank
  std::optional<double> assignments_per_step = {};  // in a layer, over all ranks
  std::optional<double> expert_bytes = {};
  std::optional<double> link_gigabytes_per_s = {};  // of the link into one rank
  std::optional<int> top_k = {};                    // experts per token and layer
  std::vector<std::string> notes = {};              // what was assumed, one sentence each
  bool has_model = false;  // sizes of experts are known, though perhaps not their bytes
  bool has_rate = false;   // the rate of matrix products is known
};

// GB/s of the slowest link between two ranks; nothing for a single rank.
std::optional<double> slowest_link(const Topology& topology);

// Milliseconds of the MoE layers in a step, given max/mean averaged over layers.
std::optional<double> step_ms(const StepModel& model, int num_layers, int num_ranks, double max_over_mean);

struct Move {
  std::int64_t experts = 0;       // new pairs (layer, expert and rank)
  std::int64_t most_on_rank = 0;  // largest number of new pairs on one rank
  std::optional<double> bytes = {};
  std::optional<double> ms = {};
};

// Throws InvalidArgument if the two placements differ in layers, experts or ranks.
Move move_between(const Placement& before, const Placement& after, const StepModel& model);

}  // namespace evenkeel
