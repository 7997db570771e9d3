// The seam between a layer, which is the same everywhere, and the device that carries out its steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel::internal {

// A step between its forward and its backward pass.
class StepState {
 public:
  virtual ~StepState() = default;
  // Throw Unsupported where they stay on the device.
  virtual const StepPlan& plan() const = 0;
  virtual std::span<const Chunk> chunks() const = 0;

  ConstRows hidden;
  TopK top_k;
};

// MoeLayer has checked the arguments. forward(), backward() and, on a GPU, set_weights() are collective.
class LayerBackend {
 public:
  virtual ~LayerBackend() = default;

  virtual void set_weights(std::span<const ExpertWeights> natives) = 0;
  virtual void set_planner(const PlannerOptions& options) = 0;

  // Null where as many states are alive as the layer was made for.
  virtual StepState* take_state() = 0;
  virtual void give_back(StepState* state) noexcept = 0;
  virtual void forward(StepState& state, ConstRows hidden, const TopK& top_k, Rows output) = 0;
  virtual void backward(StepState& state, ConstRows grad_output, const MoeGradients& gradients) = 0;
  // After an error: returns when no other rank's work reads this one's memory or the caller's tensors.
  virtual void await_others() noexcept {}

  virtual StepReport report(const StepState& state) = 0;
  virtual const BitwiseReport& bitwise() const = 0;
  virtual std::int64_t least_budget() const = 0;
};

// Collective. In layer/cpu/; what it is given must stay.
std::unique_ptr<LayerBackend> make_cpu_layer(const LayerParts& layer);

}  // namespace evenkeel::internal
