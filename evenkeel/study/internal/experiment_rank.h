// One rank of an experiment: its layers, and the steps it takes with the others.
#pragma once

#include <memory>
#include <vector>

#include "evenkeel/study/internal/step_samples.h"

namespace evenkeel::internal {

// Shared by all ranks: what is measured, and what came of it, each rank writing its own part.
struct Measurement {
  const ExperimentSetup& setup;
  const std::vector<Batch>& batches;
  const Inspect& inspect;
  const RoundProgress& progress;
  std::shared_ptr<const ExpertFfn> experts = nullptr;  // null: the library's own
  std::vector<Candidate> slots = {};                   // the steps of a round
  std::vector<StepSamples> samples = {};               // by batch
  StepResults results = {};                            // of the last step
};

// Of every layer in an experiment, whoever computes.
MoeOptions layer_options(const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens);

void run_rank(Communicator& comm, Measurement& shared);

}  // namespace evenkeel::internal
