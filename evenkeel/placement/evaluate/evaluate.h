// A placement judged on recordings, those that it was made from or any other: how level it is over a whole
// recording and in its steps, what a step would take, and what it takes to move there. Whether that pays:
// verdict.h.
//
// Level       max/mean of the ranks' loads, by the rule with which the server chooses copies. A placement
//             that is even over an hour is not even in a step, so steps are judged one by one.
// Time        a model: the experts of the heaviest rank, layer after layer, by arithmetic alone. Waiting for
//             weights and what is sent are left out. max/mean x assignments of a step / ranks x time of an
//             assignment, summed over layers.
// Move        the experts that a rank holds afterwards and did not before, over the slowest rank's link.
// Cost        loads x placements; steps the same each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/quality.h"
#include "evenkeel/routing/recording.h"

namespace evenkeel {

// Over the steps of a recording, max/mean in the mean of layers with load.
struct StepSpread {
  double mean = 1;
  double median = 1;
  double p95 = 1;  // the smallest that 95 % of the steps do not exceed
  double worst = 1;
};

struct RecordingJudgement {
  PlacementQuality quality;         // of the whole recording
  std::optional<StepSpread> steps;  // where it has steps
};

// `steps` are of the same layers and experts as the recording. Throws as placement_quality() does.
RecordingJudgement judge(const RoutingProfile& recording, std::span<const RoutingProfile> steps,
                         const Topology& topology, const ServedPlacement& placement);
inline RecordingJudgement judge(const RoutingProfile& recording, std::span<const RoutingProfile> steps,
                                const Topology& topology, const Placement& placement) {
  return judge(recording, steps, topology, {placement, {placement, topology, Dispatch::even}});
}

// A placement and how messages call it; contiguous homes where there is none.
struct NamedPlacement {
  std::string name = "contiguous";
  std::optional<Placement> placement = {};
  std::string argument = {};                // what errors are about
  std::vector<std::string> made_from = {};  // digests of its recordings, where they are known (provenance.h)
  Dispatch dispatch = Dispatch::even;

  // The homes of the recording's layers. Throws InvalidArgument where it is for others, or other experts.
  Placement on(const Recording& recording, int num_ranks) const;
  // As on(), by the rule: what copies of layers that were not recorded draw counts too.
  ServedPlacement served_on(const Recording& recording, const Topology& topology) const;
};

struct JudgedPlacement {
  NamedPlacement placement;
  std::vector<RecordingJudgement> on;  // by recording
  std::vector<double> blocks = {};     // level_of() each block of all recordings, where they have blocks
};
// `blocks` are taken as they are where they are known already.
JudgedPlacement judge(NamedPlacement placement, std::span<const Recording> recordings,
                      const Topology& topology, std::vector<double> blocks = {});

// max/mean by step where steps are known, else of the whole recording; mean of layers.
double level_of(const RecordingJudgement& judgement);
// The placement that is most level over all recordings, by step where steps are known; of equal ones the
// first.
const JudgedPlacement& most_level(std::span<const JudgedPlacement> placements);

// The recording with the most layers, of which a move is counted: a server's placement may have rows for
// dense layers too.
const Recording& widest(std::span<const Recording> recordings);

// The known facts about a step and the machine. Facts that are not known leave answers open.
struct StepModel {
  std::optional<double> assignment_us = {};         // of one assignment on one rank
  std::optional<double> assignments_per_step = {};  // of a layer, over all ranks
  std::optional<double> expert_bytes = {};
  std::optional<double> link_gigabytes_per_s = {};  // into one rank
  std::optional<int> top_k = {};                    // experts that a token visits in a layer
  std::vector<std::string> notes = {};              // what was assumed, a sentence each
  bool has_model = false;                           // sizes of experts, though perhaps not their bytes
  bool has_rate = false;                            // of products
};

// GB/s of the slowest link between two ranks, where there are two.
std::optional<double> slowest_link(const Topology& topology);

// The milliseconds that the MoE layers of a step take where max/mean, in the mean of layers, is this.
std::optional<double> step_ms(const StepModel& model, int num_layers, int num_ranks, double max_over_mean);

struct Move {
  std::int64_t experts = 0;       // pairs (layer, expert and rank) that are new
  std::int64_t most_on_rank = 0;  // of them, on the rank that gets most
  std::optional<double> bytes = {};
  std::optional<double> ms = {};
};

// Throws InvalidArgument where the two are of other layers, experts or ranks.
Move move_between(const Placement& before, const Placement& after, const StepModel& model);

}  // namespace evenkeel
