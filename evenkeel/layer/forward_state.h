// The state that forward leaves for backward.
#pragma once

#include <memory>
#include <span>

#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

namespace internal {
struct SavedStep;
class StepPool;
}  // namespace internal

// Move-only. Several may be in flight; backward consumes one, and dropping one without backward is legal.
// Must go before the layer that made it, on the layer's thread.
class ForwardState {
 public:
  ForwardState() = default;

  // Holds a step that backward can still consume; without one there is no plan() and no chunks().
  explicit operator bool() const { return step_ != nullptr; }
  const StepPlan& plan() const;
  // The chunks in which the step was carried out.
  std::span<const Chunk> chunks() const;

 private:
  friend class MoeLayer;

  struct GiveBack {
    internal::StepPool* pool;  // of a state that holds a step
    void operator()(internal::SavedStep* step) const noexcept;
  };
  explicit ForwardState(internal::StepPool& pool);

  std::unique_ptr<internal::SavedStep, GiveBack> step_;
};

}  // namespace evenkeel
