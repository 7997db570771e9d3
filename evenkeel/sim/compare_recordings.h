// All of `evenkeel compare`: takes recordings and the known facts about model and machine, and returns
// figures and verdicts.
//
//   const ComparedRecordings compared = compare_recordings(
//       recordings, {}, {.machine = {.topology = preset_topology("8xh100"), .topology_has_links = true,
//                                    .model = read_model_description("config.json"), .device = "h100"}});
//   compared.summary_of("level")->sentence;  // "steps take 0.71x plain EP's time (0.69 to 0.74), for ..."
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/routing/recording.h"
#include "evenkeel/sim/setup.h"
#include "evenkeel/sim/verdict.h"

namespace evenkeel {

struct CompareRequest {
  SimRequest machine;
  StepCut cut = {};
  std::string methods = {};  // "ep,eplb:32+level,all" (method.h); empty: usual_methods()
  std::optional<int> place_every = {};
  std::optional<int> slots = {};  // number of slots for all methods that have slots
};

struct ComparedRecordings {
  SimRequest machine;
  std::vector<std::string> recordings;   // names of the replayed recordings
  std::vector<std::string> placed_from;  // names of the recordings placed from; empty: part of `recordings`
  Comparison comparison = {};
  std::vector<MethodSummary> summaries = {};  // one for each method
  int num_layers = 0, num_experts = 0;
  std::optional<int> top_k = {};
  LayerNumbers layers = {};
  std::vector<std::string> notes = {};

  // Returns null if no method of that name was compared.
  const MethodSummary* summary_of(const std::string& method) const;
};

// Without `place_from`, placements are made from the first half of the steps, and the other half is replayed.
// A single step serves for both, and the result says so. Throws what read_recording(), steps_of(),
// sim_setup() and compare() throw. Throws InvalidArgument if recordings differ in layers or experts, and for
// options that would have no effect.
ComparedRecordings compare_recordings(std::span<const Recording> recordings,
                                      std::span<const Recording> place_from, const CompareRequest& request,
                                      const SimProgress& progress = {});

}  // namespace evenkeel
