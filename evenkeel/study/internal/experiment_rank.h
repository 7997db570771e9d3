// One rank of an experiment: its layers, the steps it takes with the others, and what came of them.
#pragma once

#include <memory>
#include <vector>

#include "evenkeel/study/internal/step_samples.h"

namespace evenkeel::internal {

// What is measured. Every rank knows it, and nothing of another's results.
struct Measurement {
  const ExperimentSetup& setup;
  const std::vector<Batch>& batches;
  const Inspect& inspect;                              // by the first rank
  const RoundProgress& progress;                       // likewise
  std::shared_ptr<const ExpertFfn> experts = nullptr;  // null: the library's own
  std::vector<Candidate> slots = {};                   // the steps of a round
};

// Of every layer in an experiment, whoever computes.
MoeOptions layer_options(const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens);

// The samples of all ranks, by batch: the same on every rank.
std::vector<StepSamples> run_rank(Communicator& comm, const Measurement& what);

}  // namespace evenkeel::internal
