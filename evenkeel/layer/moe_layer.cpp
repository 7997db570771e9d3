#include "evenkeel/layer/moe_layer.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/abort_on_error.h"
#include "evenkeel/layer/internal/layer_backend.h"

namespace evenkeel {

namespace {

// Throws InvalidArgument if a tensor of the expert is null. `what` is "weights" or "gradients".
template <class Tensors>
void require_whole(const Tensors& tensors, std::string_view what, ExpertId expert, bool biases) {
  const auto require = [&](bool is_there, const char* tensor) {
    if (!is_there)
      throw InvalidArgument(fmt::format("{} of expert {}", what, expert.value()),
                            fmt::format("{} is missing", tensor),
                            biases ? "gate_up, down and both biases" : "gate_up and down");
  };
  require(tensors.gate_up != nullptr, "gate_up");
  require(tensors.down != nullptr, "down");
  require(!biases || tensors.gate_up_bias != nullptr, "gate_up_bias");
  require(!biases || tensors.down_bias != nullptr, "down_bias");
}

}  // namespace

ForwardState::ForwardState(internal::LayerBackend& layer)
    : step_(layer.take_state(), ReturnToLayer{&layer}) {}

void ForwardState::ReturnToLayer::operator()(internal::StepState* step) const noexcept {
  layer->give_back(step);
}

const internal::StepState& ForwardState::held() const {
  if (step_ == nullptr)
    throw InvalidArgument("state", "holds no step", "a state from forward(), before its backward()");
  return *step_;
}

const StepPlan& ForwardState::plan() const {
  return held().plan();
}

std::span<const Chunk> ForwardState::chunks() const {
  return held().chunks();
}

MoeLayer::MoeLayer(Communicator& comm, Arena& arena, const MoeShape& shape, LayerPlacement placement,
                   MoeOptions options)
    : parts_(std::make_unique<internal::LayerParts>(comm, arena, shape, std::move(placement),
                                                    std::move(options))) {
  parts_->require_agreement();
  const LayerDevice* const other = parts_->other_device();
  backend_ = other == nullptr ? internal::make_cpu_layer(*parts_) : other->make(*parts_);
}

MoeLayer::~MoeLayer() = default;

const LayerPlacement& MoeLayer::placement() const {
  return parts_->placement;
}

std::span<const ExpertId> MoeLayer::natives() const {
  return parts_->natives();
}

const BitwiseReport& MoeLayer::bitwise() const {
  return backend_->bitwise();
}

std::int64_t MoeLayer::least_budget() const {
  return backend_->least_budget();
}

StepReport MoeLayer::report(const ForwardState& state) const {
  require_state(state);
  return backend_->report(*state.step_);
}

// If the step fails, ends it on all ranks. When this throws, no rank reads the caller's tensors any more.
template <class Step>
void MoeLayer::run_or_end_all(const Step& step) const {
  try {
    abort_on_error(parts_->comm, step);
  } catch (...) {
    backend_->await_others();
    throw;
  }
}

// Collective on a GPU.
void MoeLayer::set_weights(std::span<const ExpertWeights> natives) {
  const auto set = [&] {
    require_weights(natives);
    backend_->set_weights(natives);
  };
  if (parts_->other_device() == nullptr)
    set();
  else
    run_or_end_all(set);
  weights_set_ = true;
}

void MoeLayer::set_planner(const PlannerOptions& options) {
  backend_->set_planner(options);
}

ForwardState MoeLayer::forward(ConstRows hidden, const TopK& top_k, Rows output) {
  ForwardState state(*backend_);
  if (!state)
    throw InvalidArgument("forward", "more states are alive than the layer was made for",
                          "a larger states_in_flight, or backward before the next forward");
  run_or_end_all([&] {
    require_input(hidden, top_k, output);
    backend_->forward(*state.step_, hidden, top_k, output);
  });
  return state;
}

void MoeLayer::backward(ForwardState state, ConstRows grad_output, const MoeGradients& gradients) {
  run_or_end_all([&] {
    require_backward(state, grad_output, gradients);
    backend_->backward(*state.step_, grad_output, gradients);
  });
}

void MoeLayer::require_weights(std::span<const ExpertWeights> weights) const {
  const auto own = natives();
  if (weights.size() != own.size())
    throw InvalidArgument("weights", fmt::format("{} experts", weights.size()),
                          fmt::format("the {} at home on this rank", own.size()));
  for (std::size_t i = 0; i < own.size(); ++i)
    require_whole(weights[i], "weights", own[i], parts_->shape.expert.biases);
}

void MoeLayer::require_rows(const char* name, ConstRows rows, std::int64_t tokens) const {
  const ExpertShape& expert = parts_->shape.expert;
  if (rows.rows != tokens || rows.columns != expert.hidden || rows.type != expert.type)
    throw InvalidArgument(name, fmt::format("[{}, {}] {}", rows.rows, rows.columns, name_of(rows.type)),
                          fmt::format("[{}, {}] {}", tokens, expert.hidden, name_of(expert.type)));
  if (rows.data == nullptr && tokens > 0) throw InvalidArgument(name, "is null");
}

void MoeLayer::require_input(ConstRows hidden, const TopK& top_k, ConstRows output) const {
  if (!weights_set_) throw InvalidArgument("weights", "are not set", "set_weights before forward");
  const std::int64_t most = parts_->options.max_tokens;
  if (top_k.tokens < 0 || top_k.tokens > most)
    throw InvalidArgument("top_k", fmt::format("{} tokens", top_k.tokens), fmt::format("0..{}", most));
  const int k = parts_->shape.top_k;
  const auto choices = static_cast<std::size_t>(top_k.tokens * k);
  if (top_k.k != k || top_k.experts.size() != choices || top_k.weights.size() != choices)
    throw InvalidArgument("top_k",
                          fmt::format("{} tokens, k = {}, {} entries in experts, {} in weights", top_k.tokens,
                                      top_k.k, top_k.experts.size(), top_k.weights.size()),
                          fmt::format("k = {}, and tokens * k entries in each", k));
  if (choices > 0 && top_k.experts.data() == nullptr) throw InvalidArgument("top_k.experts", "is null");
  if (choices > 0 && top_k.weights.data() == nullptr) throw InvalidArgument("top_k.weights", "is null");
  require_rows("hidden", hidden, top_k.tokens);
  require_rows("output", output, top_k.tokens);
}

void MoeLayer::require_backward(const ForwardState& state, ConstRows grad_output,
                                const MoeGradients& gradients) const {
  if (!parts_->options.with_backward)
    throw InvalidArgument("backward", "the layer was made without backward", "options.with_backward");
  require_state(state);
  const TopK& top_k = state.step_->top_k;
  require_rows("grad_output", grad_output, top_k.tokens);
  require_rows("gradient of hidden", gradients.hidden, top_k.tokens);
  if (gradients.experts.size() != natives().size())
    throw InvalidArgument("gradients", fmt::format("{} experts", gradients.experts.size()),
                          fmt::format("the {} at home on this rank", natives().size()));
  for (std::size_t i = 0; i < natives().size(); ++i)
    if (parts_->owns(natives()[i]))
      require_whole(gradients.experts[i], "gradients", natives()[i], parts_->shape.expert.biases);
  if (gradients.router_weights.size() != top_k.weights.size())
    throw InvalidArgument("gradient of router weights",
                          fmt::format("{} numbers", gradients.router_weights.size()),
                          fmt::format("{}, one per token and top-k choice", top_k.weights.size()));
  if (!top_k.weights.empty() && gradients.router_weights.data() == nullptr)
    throw InvalidArgument("gradient of router weights", "is null");
}

void MoeLayer::require_state(const ForwardState& state) const {
  if (!state || state.step_.get_deleter().layer != backend_.get())
    throw InvalidArgument("state", "holds no forward step of this layer",
                          "a state from forward(), used once");
}

}  // namespace evenkeel
