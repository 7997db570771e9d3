// The seeded layer that benchmarks run, and what goes into it.
#pragma once

#include "cli/experiment.h"
#include "cli/layer_options.h"
#include "cli/tensors.h"

namespace evenkeel::cli {

// Ways of a layer with homes in the order of experts, without its experts and tokens.
ExperimentSetup unmade_experiment(const LayerOptions& options, int ranks, bool backward, std::int64_t rounds,
                                  const Candidate& reference, std::vector<Candidate> candidates);

class BenchLayer {
 public:
  // For batches of up to so many tokens, over all ranks.
  BenchLayer(const LayerOptions& options, int ranks, std::int64_t tokens, bool backward);
  BenchLayer(const BenchLayer&) = delete;
  BenchLayer& operator=(const BenchLayer&) = delete;

  // This must outlive what is returned.
  ExperimentSetup experiment(std::int64_t rounds, const Candidate& reference,
                             std::vector<Candidate> candidates) const;

 private:
  LayerOptions options_;
  int ranks_;
  bool backward_;
  ExpertModel experts_;
  Tensor hidden_;
  Tensor grad_output_;
};

// A seeded batch of a named workload.
Batch scenario_batch(const std::string& scenario, const LayerOptions& options, int ranks,
                     std::int64_t tokens_per_rank);

}  // namespace evenkeel::cli
