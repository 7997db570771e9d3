#include "evenkeel/layer/cpu/internal/saved_step.h"

#include <utility>

namespace evenkeel::internal {

SavedStep* StepPool::take() {
  if (free_.empty()) {
    free_.reserve(++steps_);
    free_.push_back(std::make_unique<SavedStep>());
  }
  SavedStep* const step = free_.back().release();
  free_.pop_back();
  return step;
}

void StepPool::give_back(SavedStep* step) noexcept {
  step->kept.clear();
  step->own_choices = {};
  if (step->choices != nullptr) free_choices_.push_back(std::exchange(step->choices, nullptr));
  free_.emplace_back(step);
}

std::byte* StepPool::take_choices() {
  if (free_choices_.empty()) return nullptr;
  std::byte* const choices = free_choices_.back();
  free_choices_.pop_back();
  return choices;
}

}  // namespace evenkeel::internal
