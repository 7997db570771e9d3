// The set-up shared by the benchmarks: a seeded layer with contiguous homes, the planners, and the number of
// rounds.
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
  std::int64_t tokens = 2048;  // on each rank
  int pairs = 41;
  bool backward = false;
  std::vector<PlannerOptions> planners;  // at least one
  Budget budget;
  RankPlaces where = {};
};

// Returns the progress callback for the measurement named `what`.
using NamedProgress = std::function<RoundProgress(const std::string& what)>;

// The candidates are the planners without plain ep, all with the set-up's budget. `inputs` is left unset.
ExperimentSetup experiment_of(const StudySetup& setup);
// The same layer with a different reference and candidates. `inputs` must outlive the result.
ExperimentSetup experiment_of(const StudySetup& setup, const LayerInputs& inputs, const Candidate& reference,
                              std::vector<Candidate> candidates, int rounds);
// Inputs for batches of up to `tokens` tokens over all ranks. Throws Unsupported, before anything is
// allocated, if the machine has too little memory.
LayerInputs seeded_inputs(const StudySetup& setup, std::int64_t tokens);
// A seeded batch of a named workload.
Batch scenario_batch(const StudySetup& setup, const std::string& scenario);

}  // namespace evenkeel
