#include "tests/layer/rank_layer.h"

#include <algorithm>

namespace evenkeel::testing {

namespace {

MoeOptions with_memory(const MoeCase& problem, MoeOptions options) {
  options.max_tokens = std::max<std::int64_t>(1, std::ranges::max(problem.shape().tokens));
  return options;
}

}  // namespace

RankLayer::RankLayer(const MoeCase& problem, Communicator& comm, Arena& arena, MoeOptions options)
    : problem_(problem),
      rank_(comm.rank().value()),
      first_(problem.first_token(rank_)),
      layer_(comm, arena, problem.shape().moe,
             LayerPlacement::contiguous(problem.shape().moe.num_experts, comm.size()),
             with_memory(problem, std::move(options))) {
  layer_.set_weights(problem.weights_of(layer_.natives()));
  const ExpertShape& e = expert();
  const TopK mine = top_k();
  output_ = Tensor(mine.tokens * e.hidden, e.type);
  grad_hidden_ = output_;
  grad_router_weights_.resize(mine.experts.size());
  grad_experts_.assign(layer_.natives().size(), std::vector<float>(static_cast<std::size_t>(e.elements())));
  for (std::vector<float>& all : grad_experts_) {
    float* const gate_up = all.data();
    float* const down = gate_up + e.gate_up_rows() * e.hidden;
    float* const gate_up_bias = down + e.intermediate * e.hidden;
    gradients_.push_back({gate_up, down, e.biases ? gate_up_bias : nullptr,
                          e.biases ? gate_up_bias + e.gate_up_rows() : nullptr});
  }
}

MoeGradients RankLayer::gradients(std::int64_t tokens) {
  const auto choices =
      static_cast<std::size_t>(tokens) * static_cast<std::size_t>(problem_.shape().moe.top_k);
  return {{grad_hidden_.data(), tokens, expert().hidden, expert().type},
          std::span(grad_router_weights_).first(choices),
          gradients_};
}

}  // namespace evenkeel::testing
