#include "evenkeel/layer/moe_layer.h"

#include <fmt/format.h>

#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/abort_on_error.h"
#include "evenkeel/layer/internal/backward_pass.h"
#include "evenkeel/layer/internal/forward_pass.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/whole_expert.h"

namespace evenkeel {

MoeLayer::MoeLayer(Communicator& comm, Arena& arena, const MoeShape& shape, LayerPlacement placement,
                   MoeOptions options)
    : body_(std::make_unique<internal::LayerBody>(comm, arena, shape, std::move(placement),
                                                  std::move(options))) {}

MoeLayer::~MoeLayer() = default;

const LayerPlacement& MoeLayer::placement() const {
  return body_->placement;
}

std::span<const ExpertId> MoeLayer::natives() const {
  return body_->natives_here();
}

const BitwiseReport& MoeLayer::bitwise() const {
  return body_->bitwise;
}

std::int64_t MoeLayer::least_budget() const {
  return evenkeel::least_budget(body_->budget);
}

void MoeLayer::set_weights(std::span<const ExpertWeights> natives) {
  body_->natives.set(natives);
}

void MoeLayer::set_planner(const PlannerOptions& options) {
  body_->planner = internal::warm_planner(options, body_->placement);
}

ForwardState MoeLayer::forward(ConstRows hidden, const TopK& top_k, Rows output) {
  return abort_on_error(body_->comm, [&] {
    body_->clock.start(false);
    require_input(hidden, top_k, output);
    ForwardState state(body_->pool);
    internal::ForwardPass(*body_, *state.step_, hidden, top_k, output).run();
    return state;
  });
}

void MoeLayer::backward(ForwardState state, ConstRows grad_output, const MoeGradients& gradients) {
  abort_on_error(body_->comm, [&] {
    body_->clock.start(true);
    require_backward(state, grad_output, gradients);
    internal::BackwardPass(*body_, *state.step_, grad_output, gradients).run();
  });
}

void MoeLayer::require_input(ConstRows hidden, const TopK& top_k, ConstRows output) const {
  if (!body_->natives.are_set())
    throw InvalidArgument("weights", "are not set", "set_weights before forward");
  if (top_k.tokens < 0 || top_k.tokens > body_->max_tokens)
    throw InvalidArgument("top_k", fmt::format("{} tokens", top_k.tokens),
                          fmt::format("0..{}", body_->max_tokens));
  const int k = body_->shape.top_k;
  const auto choices = static_cast<std::size_t>(top_k.tokens * k);
  if (top_k.k != k || top_k.experts.size() != choices || top_k.weights.size() != choices)
    throw InvalidArgument("top_k",
                          fmt::format("{} tokens, k = {}, {} experts, {} weights", top_k.tokens, top_k.k,
                                      top_k.experts.size(), top_k.weights.size()),
                          fmt::format("k = {}, and tokens * k experts and weights", k));
  body_->require_rows("hidden", hidden, top_k.tokens);
  body_->require_rows("output", output, top_k.tokens);
}

void MoeLayer::require_backward(const ForwardState& state, ConstRows grad_output,
                                const MoeGradients& gradients) const {
  if (!body_->with_backward)
    throw InvalidArgument("backward", "the layer was made without it", "with_backward");
  if (!state || state.step_.get_deleter().pool != &body_->pool)
    throw InvalidArgument("state", "holds no forward step of this layer", "what forward returned, once");
  const TopK& top_k = state.step_->top_k;
  body_->require_rows("grad_output", grad_output, top_k.tokens);
  body_->require_rows("gradient of hidden", gradients.hidden, top_k.tokens);
  if (gradients.experts.size() != natives().size())
    throw InvalidArgument("gradients", fmt::format("of {} experts", gradients.experts.size()),
                          fmt::format("of the {} at home on this rank", natives().size()));
  for (std::size_t i = 0; i < natives().size(); ++i)
    if (body_->placement.owner(natives()[i]) == body_->comm.rank())
      internal::require_whole(gradients.experts[i], "gradients", natives()[i], body_->shape.expert.biases);
  if (gradients.router_weights.size() != top_k.weights.size())
    throw InvalidArgument("gradient of router weights",
                          fmt::format("{} numbers", gradients.router_weights.size()),
                          fmt::format("{}, one for each of the top-k", top_k.weights.size()));
}

}  // namespace evenkeel
