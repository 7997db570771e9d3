// The state that forward leaves for backward.
#pragma once

#include <memory>
#include <span>

#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

namespace internal {
class LayerBackend;
class StepState;
}  // namespace internal

// Move-only. Several may be in flight; backward consumes one, and dropping one without backward is legal.
// Must go before the layer that made it, on the layer's thread.
class ForwardState {
 public:
  ForwardState() = default;

  // Holds a step that backward can still consume.
  explicit operator bool() const { return step_ != nullptr; }
  // The step's plan, and the chunks in which it was carried out. Throw InvalidArgument where there is no
  // step; Unsupported on a GPU, where they stay: MoeLayer::report() says what is asked of them mostly.
  const StepPlan& plan() const;
  std::span<const Chunk> chunks() const;

 private:
  friend class MoeLayer;

  struct GiveBack {
    internal::LayerBackend* layer;  // of a state that holds a step
    void operator()(internal::StepState* step) const noexcept;
  };
  explicit ForwardState(internal::LayerBackend& layer);

  std::unique_ptr<internal::StepState, GiveBack> step_;
};

}  // namespace evenkeel
