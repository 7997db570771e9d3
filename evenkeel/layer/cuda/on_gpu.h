// A MoeLayer on NVIDIA GPUs. Its ranks are threads of one process, on one GPU or on several that read each
// other's memory. A step is a fixed list of launches on the rank's stream: plan, chunks and sizes stay on the
// device.
//
// Steady     forward() and backward() do not wait for the device and allocate nothing, so they can be
//            captured (captured_step.h). Host threads wait only for each other, to share events. Exception:
//            if the experts' gradients have new addresses, backward() waits for the device to update them,
//            which is impossible under capture. A captured step adds to the gradients of the last backward()
//            that was not a replay.
// Memory     Taken from the arena at construction. With a budget, a step is cut into as few chunks as its
//            routing needs (a power of two, chosen on the device); the finest cut fits any routing. Launches
//            for chunks that a step does not need do nothing.
// Borrowing  Weights are borrowed into slots. Weights that do not fit the slots at once are copied in further
//            rounds. Later chunks copy them again as rarely as possible (exchange/cuda/weight_copies.h). If a
//            plan lets a rank borrow more than slots * rounds experts, the step falls back to plain ep.
// Backward   Recomputes the work that forward did before the activations, from `hidden` and the router's
//            choices, which must stay unchanged until then.
// Ids        An expert id outside -1..E-1 stops the kernel, and the next call that waits for the device
//            throws.
// Types      bf16 rows and weights; f32 router weights and weight gradients.
// Tensors    When forward or backward returns, later work on the stream may change the caller's tensors,
//            except those that backward still reads.
#pragma once

#include <memory>

#include "evenkeel/device/cuda/stream.h"
#include "evenkeel/layer/moe_layer.h"

namespace evenkeel {

struct GpuOptions {
  // Number of borrow slots. 0 selects ceil(E / P), or fewer if the budget is too small for them.
  int borrow_slots = 0;
  // The most rounds in which weights are copied into the slots.
  int rounds = 2;
};

// The value for MoeOptions::device. The communicator's ranks must be threads. Arena, `stream` and the
// caller's tensors must be on the rank's GPU; if ranks use several GPUs, the tensors must come from
// cudaMalloc. `stream` must outlive the layer. The MoeLayer constructor then throws Unsupported if the GPUs
// cannot read each other's memory, or for an unsupported type, shape or placement. It throws BudgetTooSmall
// if the arena's budget is below the least. The layer's destructor waits, on host and device, until every
// rank has finished the steps it began, since those steps read this rank's memory. During stack unwinding it
// first aborts the communicator if other ranks are inside a step.
std::shared_ptr<const LayerDevice> on_gpu(CudaStream& stream, const GpuOptions& options = {});

}  // namespace evenkeel
