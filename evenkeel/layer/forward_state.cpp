#include "evenkeel/layer/forward_state.h"

#include "evenkeel/base/error.h"
#include "evenkeel/layer/internal/layer_backend.h"

namespace evenkeel {

namespace {

const internal::StepState& held(const internal::StepState* step) {
  if (step == nullptr)
    throw InvalidArgument("state", "holds no step", "what forward() gave, before backward()");
  return *step;
}

}  // namespace

ForwardState::ForwardState(internal::LayerBackend& layer) : step_(layer.take_state(), GiveBack{&layer}) {}

void ForwardState::GiveBack::operator()(internal::StepState* step) const noexcept {
  layer->give_back(step);
}

const StepPlan& ForwardState::plan() const {
  return held(step_.get()).plan();
}

std::span<const Chunk> ForwardState::chunks() const {
  return held(step_.get()).chunks();
}

}  // namespace evenkeel
