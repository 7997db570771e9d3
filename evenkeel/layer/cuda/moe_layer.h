// The expert-parallel MoE layer on GPUs: what layer/moe_layer.h promises, for ranks that are threads of
// one process, on one GPU or on several that read each other's memory. A step is a fixed list of
// launches on the rank's stream: plan, chunks and sizes stay on the device.
//
// Steady     forward() and backward() wait for no device and allocate nothing, and can be captured
//            (captured_step.h); the host threads only meet, to pass events.
// Memory     All of it is taken from the arena at construction. Where the arena has a budget, a step is
//            cut into as few chunks (a power of two, chosen on the device) as its routing needs; the
//            finest cut fits any. Launches of chunks that a step does not need find nothing to do.
// Borrowing  Weights are borrowed into `places`; what does not fit at once comes in further rounds, and
//            in later chunks again, as seldom as may be (exchange/cuda/weight_copies.h). A plan by
//            which a rank would borrow more than places * rounds gives way to plain ep.
// Backward   Computes again what forward did before its activations, from `hidden` and the router's
//            choices, which must stay as they are until then.
// Ids        An expert id outside -1..E-1 ends the kernel, and the next call that waits for the device
//            throws.
// Types      bf16 rows and weights; f32 router weights and gradients of weights.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/device/cuda/stream.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct CudaMoeOptions {
  PlannerOptions planner;
  std::int64_t max_tokens = 4096;  // that a rank brings to a step
  bool with_backward = true;
  int states_in_flight = 1;
  int places = 0;  // for borrowed experts; 0: ceil(E / P), or fewer where the budget has no memory for them
  int rounds = 2;  // in which the places are filled, at most
};

// A router's choices, in device memory: expert ids, -1 for none, and f32 weights, both [tokens k].
struct DeviceTopK {
  std::int64_t tokens = 0;
  const std::int32_t* experts = nullptr;
  const float* weights = nullptr;
};

class CudaMoeLayer;

// A step that waits for backward. Move-only; must go before the layer. Dropping one is legal.
class CudaForwardState {
 public:
  CudaForwardState() = default;
  CudaForwardState(CudaForwardState&& other) noexcept;
  CudaForwardState& operator=(CudaForwardState&& other) noexcept;
  ~CudaForwardState() { release(); }
  explicit operator bool() const { return layer_ != nullptr; }

 private:
  friend class CudaMoeLayer;
  void release() noexcept;

  CudaMoeLayer* layer_ = nullptr;
  std::size_t slot_ = 0;
  DeviceTopK top_k_;
  const void* hidden_ = nullptr;
};

// The device's decisions for a step; reading them waits for the device.
struct CudaStepReport {
  int chunks = 0;
  int transfers = 0;
  bool fell_back_to_ep = false;   // to plain ep, for want of places
  int borrowed = 0;               // experts, by this rank
  std::int64_t weights_sent = 0;  // to this rank in a pass; more than `borrowed` where places are fewer
  std::vector<std::int32_t> rank_loads;
};

class CudaMoeLayer {
 public:
  // Collective. The communicator's ranks are threads; arena, stream and the caller's tensors are of the
  // rank's GPU, the tensors made by cudaMalloc where ranks are on several. Throws Unsupported where GPUs do
  // not read each other's memory, or for a type, a shape or a placement that this layer has not;
  // BudgetTooSmall where the arena's budget is below the least; InvalidArgument as MoeLayer does. All that is
  // passed by reference must stay.
  CudaMoeLayer(Communicator& comm, Arena& arena, CudaStream& stream, const MoeShape& shape,
               LayerPlacement placement, const CudaMoeOptions& options = {});
  // Waits until every rank is past the steps that it has begun, on host and device: they read this one's
  // memory. Where an exception passes while others are within a step, it aborts the communicator first.
  ~CudaMoeLayer();
  CudaMoeLayer(const CudaMoeLayer&) = delete;
  CudaMoeLayer& operator=(const CudaMoeLayer&) = delete;

  // Addresses on the device, of the experts at home here, in order; gradients, to be added to, are f32, and
  // may be left out without backward. A redundant expert's is its owner's alone: the tensors of its other
  // homes may be null. What they point to may change between steps, the addresses may not. Waits for the
  // device. Throws InvalidArgument where an expert or a tensor is missing.
  void set_weights(std::span<const ExpertWeights> natives, std::span<const ExpertGradients> gradients = {});

  // hidden and output: [tokens, D] in device memory. At the end of forward, as of backward, the caller may
  // change what it passed by later work on the stream, but for what backward reads. What is thrown here ends
  // the step on all ranks; then nobody reads what was passed any more.
  CudaForwardState forward(const void* hidden, const DeviceTopK& top_k, void* output);
  // Overwrites grad_hidden [tokens, D] and grad_router_weights [tokens k], adds to the experts' gradients.
  void backward(CudaForwardState state, const void* grad_output, void* grad_hidden,
                float* grad_router_weights);

  CudaStepReport report(const CudaForwardState& state);

  int most_chunks() const;
  std::int64_t most_positions() const;
  int places() const;

 private:
  friend class CudaForwardState;
  class Body;
  std::unique_ptr<Body> body_;
};

}  // namespace evenkeel
