// A MoeLayer on NVIDIA GPUs, for ranks that are threads of one process, on one GPU or on several that read
// each other's memory. A step is a fixed list of launches on the rank's stream: plan, chunks and sizes stay
// on the device.
//
// Steady     forward() and backward() wait for no device and allocate nothing, and can be captured
//            (captured_step.h); the host threads only meet, to pass events. A backward() whose experts'
//            gradients are at other addresses than before waits for the device, to tell it: not under
//            capture. A captured step adds to the gradients of the last backward() that was not a replay.
// Memory     All of it is taken from the arena at construction. Where the arena has a budget, a step is
//            cut into as few chunks (a power of two, chosen on the device) as its routing needs; the
//            finest cut fits any. Launches of chunks that a step does not need find nothing to do.
// Borrowing  Weights are borrowed into slots; what does not fit at once comes in further rounds, and
//            in later chunks again, as seldom as may be (exchange/cuda/weight_copies.h). A plan by
//            which a rank would borrow more than slots * rounds gives way to plain ep.
// Backward   Computes again what forward did before its activations, from `hidden` and the router's
//            choices, which must stay as they are until then.
// Ids        An expert id outside -1..E-1 ends the kernel, and the next call that waits for the device
//            throws.
// Types      bf16 rows and weights; f32 router weights and gradients of weights.
// Tensors    At the end of forward, as of backward, the caller may change what it passed by later work on the
//            stream, but for what backward reads.
#pragma once

#include <memory>

#include "evenkeel/device/cuda/stream.h"
#include "evenkeel/layer/moe_layer.h"

namespace evenkeel {

struct GpuOptions {
  // For borrowed experts; 0: ceil(E / P), or fewer where the budget has no memory for them.
  int borrow_slots = 0;
  // In which the slots are filled, at most.
  int rounds = 2;
};

// For MoeOptions::device. The communicator's ranks are threads; arena, `stream` and the caller's tensors are
// of the rank's GPU, the tensors made by cudaMalloc where ranks are on several. `stream` must outlive the
// layer. MoeLayer then throws Unsupported where GPUs do not read each other's memory, or for a type, a shape
// or a placement that this has not; BudgetTooSmall where the arena's budget is below the least. A layer that
// ends waits until every rank is past the steps that it has begun, on host and device, since they read this
// one's memory; where an exception passes while others are within a step, it aborts the communicator first.
std::shared_ptr<const LayerDevice> on_gpu(CudaStream& stream, const GpuOptions& options = {});

}  // namespace evenkeel
