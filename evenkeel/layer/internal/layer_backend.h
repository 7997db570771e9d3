// The interface between a layer, which is the same on every device, and the device that runs its steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel::internal {

// A digest of something that must be equal on all ranks.
struct Digest {
  std::string what;
  std::uint64_t value;
};

// Collective. For each digest, the first rank whose value differs from rank 0's, or -1.
std::vector<int> first_to_differ(Communicator& comm, std::span<const Digest> digests);

// The parts of a layer that are the same on every device, fixed at construction.
struct LayerParts {
  // Throws InvalidArgument if the arguments do not fit together.
  LayerParts(Communicator& communicator, Arena& memory, const MoeShape& moe, LayerPlacement homes,
             MoeOptions given);

  // The experts native to this rank, ascending.
  std::span<const ExpertId> natives() const { return placement.natives(comm.rank()); }
  // Whether this rank owns the expert's gradient.
  bool owns(ExpertId expert) const { return placement.owner(expert) == comm.rank(); }
  // Null for a layer on the CPU.
  const LayerDevice* other_device() const {
    const auto* const other = std::get_if<std::shared_ptr<const LayerDevice>>(&options.device);
    return other == nullptr ? nullptr : other->get();
  }
  // Collective. Throws InvalidArgument on all ranks, naming one that differs, if the ranks build different
  // layers. Without this check a later step would hang.
  void require_agreement() const;

  Communicator& comm;
  Arena& arena;
  const MoeShape shape;
  const LayerPlacement placement;
  const MoeOptions options;

 private:
  std::vector<Digest> digests() const;
};

// A step between its forward and its backward pass.
class StepState {
 public:
  virtual ~StepState() = default;
  // Throw Unsupported if plan and chunks stay on the device.
  virtual const StepPlan& plan() const = 0;
  virtual std::span<const Chunk> chunks() const = 0;

  ConstRows hidden;
  TopK top_k;
};

// MoeLayer has already checked all arguments. forward() and backward() are collective; on a GPU so is
// set_weights().
class LayerBackend {
 public:
  virtual ~LayerBackend() = default;

  virtual void set_weights(std::span<const ExpertWeights> natives) = 0;
  virtual void set_planner(const PlannerOptions& options) = 0;

  // Null if as many states are alive as the layer allows.
  virtual StepState* take_state() = 0;
  virtual void give_back(StepState* state) noexcept = 0;
  virtual void forward(StepState& state, ConstRows hidden, const TopK& top_k, Rows output) = 0;
  virtual void backward(StepState& state, ConstRows grad_output, const MoeGradients& gradients) = 0;
  // After an error: waits until no other rank's work reads this rank's memory or the caller's tensors.
  virtual void await_others() noexcept {}

  virtual StepReport report(const StepState& state) = 0;
  virtual const BitwiseReport& bitwise() const = 0;
  virtual std::int64_t least_budget() const = 0;
};

// Collective. Defined in layer/cpu/. `layer` must outlive the result.
std::unique_ptr<LayerBackend> make_cpu_layer(const LayerParts& layer);

}  // namespace evenkeel::internal
