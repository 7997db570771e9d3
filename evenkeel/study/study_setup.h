// The set-up that the benchmarks' measurements have in common: a seeded layer with homes in the order of
// experts, the planners that run it, and how often.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "evenkeel/study/experiment.h"

namespace evenkeel {

struct StudySetup {
  MoeShape shape;
  std::uint64_t seed = 1;
  int ranks = 8;
  std::int64_t tokens = 2048;  // for each rank
  int pairs = 41;
  bool backward = false;
  std::vector<PlannerOptions> planners;  // one at least
  Budget budget;
  RankPlaces where = {};
};

// By the name of the measurement under way: its progress.
using NamedProgress = std::function<RoundProgress(const std::string& what)>;

// The planners beside plain ep, all in the budget; without inputs.
ExperimentSetup experiment_of(const StudySetup& setup);
// Other candidates of the same layer. `inputs` must outlive what is returned.
ExperimentSetup experiment_of(const StudySetup& setup, const LayerInputs& inputs, const Candidate& reference,
                              std::vector<Candidate> candidates, int rounds);
// For batches of up to so many tokens over all ranks. Throws Unsupported, before anything of it is made,
// where the machine has not enough memory.
LayerInputs seeded_inputs(const StudySetup& setup, std::int64_t tokens);
// A seeded batch of a named workload.
Batch scenario_batch(const StudySetup& setup, const std::string& scenario);

}  // namespace evenkeel
