#include "cli/bench_layer.h"

#include <utility>

#include "cli/experiment_memory.h"

namespace evenkeel::cli {

namespace {

// Refused before anything of it is made.
const LayerOptions& checked(const LayerOptions& options, int ranks, std::int64_t tokens, bool backward) {
  require_memory(unmade_experiment(options, ranks, backward, 1, plain_ep({}), {}), tokens);
  return options;
}

}  // namespace

ExperimentSetup unmade_experiment(const LayerOptions& options, int ranks, bool backward, std::int64_t rounds,
                                  const Candidate& reference, std::vector<Candidate> candidates) {
  const MoeShape shape = options.shape();
  return {shape,
          LayerPlacement::contiguous(shape.num_experts, ranks),
          nullptr,
          nullptr,
          nullptr,
          backward,
          static_cast<int>(rounds),
          reference,
          std::move(candidates)};
}

BenchLayer::BenchLayer(const LayerOptions& options, int ranks, std::int64_t tokens, bool backward)
    : options_(checked(options, ranks, tokens, backward)),
      ranks_(ranks),
      backward_(backward),
      experts_(seeded_experts(options.shape().expert, options.shape().num_experts,
                              static_cast<std::uint64_t>(options.seed))),
      hidden_(seeded_hidden(options, tokens)),
      grad_output_(seeded_grad_output(options, backward ? tokens : 0)) {}

ExperimentSetup BenchLayer::experiment(std::int64_t rounds, const Candidate& reference,
                                       std::vector<Candidate> candidates) const {
  ExperimentSetup setup =
      unmade_experiment(options_, ranks_, backward_, rounds, reference, std::move(candidates));
  setup.experts = &experts_;
  setup.hidden = &hidden_;
  setup.grad_output = &grad_output_;
  return setup;
}

Batch scenario_batch(const std::string& scenario, const LayerOptions& options, int ranks,
                     std::int64_t tokens_per_rank) {
  const MoeShape shape = options.shape();
  return batch_of_workload(parse_workload(scenario), {ranks, tokens_per_rank, shape.num_experts, shape.top_k},
                           static_cast<std::uint64_t>(options.seed));
}

}  // namespace evenkeel::cli
