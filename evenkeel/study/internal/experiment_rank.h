// One rank of an experiment: its layers, its steps, and their results.
#pragma once

#include <memory>
#include <vector>

#include "evenkeel/study/internal/step_samples.h"

namespace evenkeel::internal {

// What to measure. Every rank has the same Measurement; no rank needs another rank's results to run it.
struct Measurement {
  const ExperimentSetup& setup;
  const std::vector<Batch>& batches;
  const Inspect& inspect;                              // called on the first rank
  const RoundProgress& progress;                       // called on the first rank
  std::shared_ptr<const ExpertFfn> experts = nullptr;  // null: use the library's own
  std::vector<Candidate> slots = {};                   // one for each step of a round
};

// The options of every layer in an experiment.
MoeOptions layer_options(const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens);

// Returns the samples of all ranks for each batch. Every rank returns the same.
std::vector<StepSamples> run_rank(Communicator& comm, const Measurement& what);

}  // namespace evenkeel::internal
