#include "cli/bench_layer.h"

#include <utility>

namespace evenkeel::cli {

BenchLayer::BenchLayer(const LayerOptions& options, int ranks, std::int64_t tokens, bool backward)
    : shape_(options.shape()),
      ranks_(ranks),
      backward_(backward),
      experts_(seeded_experts(shape_.expert, shape_.num_experts, static_cast<std::uint64_t>(options.seed))),
      hidden_(seeded_hidden(options, tokens)),
      grad_output_(seeded_grad_output(options, backward ? tokens : 0)) {}

ExperimentSetup BenchLayer::experiment(std::int64_t rounds, const Way& reference,
                                       std::vector<Way> ways) const {
  return {shape_,
          LayerPlacement::contiguous(shape_.num_experts, ranks_),
          &experts_,
          &hidden_,
          &grad_output_,
          backward_,
          static_cast<int>(rounds),
          reference,
          std::move(ways)};
}

Batch scenario_batch(const std::string& scenario, const LayerOptions& options, int ranks,
                     std::int64_t tokens_per_rank) {
  const MoeShape shape = options.shape();
  return batch_of_workload(parse_workload(scenario), {ranks, tokens_per_rank, shape.num_experts, shape.top_k},
                           static_cast<std::uint64_t>(options.seed));
}

}  // namespace evenkeel::cli
