#include "evenkeel/layer/cpu/internal/saved_step.h"

#include <utility>

namespace evenkeel::internal {

SavedStep* StepPool::take() {
  if (limited_ && free_choices_.empty()) return nullptr;
  if (free_.empty()) {
    free_.reserve(++steps_);
    free_.push_back(std::make_unique<SavedStep>());
  }
  SavedStep* const step = free_.back().release();
  free_.pop_back();
  if (limited_) {
    step->choices = free_choices_.back();
    free_choices_.pop_back();
  }
  return step;
}

void StepPool::give_back(SavedStep* step) noexcept {
  step->kept.clear();
  step->own_choices = {};
  if (step->choices != nullptr) free_choices_.push_back(std::exchange(step->choices, nullptr));
  free_.emplace_back(step);
}

}  // namespace evenkeel::internal
