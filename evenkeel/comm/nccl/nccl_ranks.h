// One rank a GPU, through NCCL: bytes move from GPU to GPU, over NVLink or the network.
//
// Control   NCCL moves bytes and knows no more. How ranks find each other, why they stop and which one keeps
//           the others waiting goes through `control`, a communicator of the same ranks on their hosts:
//           threads, MPI.
// Streams   All operations take a CudaStream of the rank's GPU, and are handed over when they are called. The
//           ranks must call in one order over all communicators of a root that share a GPU's streams: NCCL's
//           kernels wait on the GPU for their peers.
// Sizes     What a message has must be known to the host, on both sides, and agree: NCCL does not check it.
// Sums      all_reduce gathers and then reduces in rank order, so that all ranks get the same bits.
// Deadline  A wait on the host that outlasts the deadline asks the ranks, through control, how far they are:
//           who does not answer within control's own deadline is to blame; where all answer, the one that
//           handed over least.
// Errors    As of every communicator: the first cause, on every rank, and no way back. A wait looks at
//           control and at NCCL's own errors while it waits; aborting ends NCCL's kernels that are under way.
#pragma once

#include <memory>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

struct NcclOptions {
  double deadline_seconds = 30;  // how long a wait on the host may last before the ranks ask each other
};

// Collective. `control` must outlive what this returns. Throws Unsupported, with the reason, where the GPU or
// NCCL itself (libnccl.so.2; the variable EVENKEEL_NCCL_LIBRARY may say which) cannot be used.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& control, int gpu,
                                                     const NcclOptions& options = {});

}  // namespace evenkeel
