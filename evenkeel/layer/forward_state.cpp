#include "evenkeel/layer/forward_state.h"

#include "evenkeel/layer/internal/saved_step.h"

namespace evenkeel {

ForwardState::ForwardState(internal::StepPool& pool) : step_(pool.take(), GiveBack{&pool}) {}

void ForwardState::GiveBack::operator()(internal::SavedStep* step) const noexcept {
  pool->give_back(step);
}

const StepPlan& ForwardState::plan() const {
  return step_->plan;
}

std::span<const Chunk> ForwardState::chunks() const {
  return step_->chunks;
}

}  // namespace evenkeel
