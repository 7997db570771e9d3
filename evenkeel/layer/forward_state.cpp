#include "evenkeel/layer/forward_state.h"

#include "evenkeel/layer/internal/layer_backend.h"

namespace evenkeel {

ForwardState::ForwardState(internal::LayerBackend& layer) : step_(layer.take_state(), GiveBack{&layer}) {}

void ForwardState::GiveBack::operator()(internal::StepState* step) const noexcept {
  layer->give_back(step);
}

const StepPlan& ForwardState::plan() const {
  return step_->plan();
}

std::span<const Chunk> ForwardState::chunks() const {
  return step_->chunks();
}

}  // namespace evenkeel
