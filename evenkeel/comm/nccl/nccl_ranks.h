// One rank per GPU, over NCCL: bytes move from GPU to GPU, over NVLink or the network.
//
// Control   NCCL only moves bytes. `control`, a communicator of the same ranks on their hosts (threads or
//           MPI), does the rest: how ranks find each other, why they stop, and which one keeps the others
//           waiting.
// Streams   All operations take a CudaStream of the rank's GPU, and are handed over when they are called. If
//           several communicators of a root share a GPU's streams, all ranks must issue calls on them in one
//           common order: NCCL's kernels wait on the GPU for their peers.
// Sizes     The host must know the size of a message on both sides, and the two must agree: NCCL does not
//           check it.
// Sums      all_reduce gathers and then reduces in rank order, so that all ranks get the same bits.
// Deadline  A wait on the host that outlasts the deadline asks the ranks, through control, how many
//           operations they have handed over. A rank that does not answer within control's own deadline is
//           blamed; if all answer, the rank that handed over the fewest is blamed.
// Errors    As with every communicator, all ranks get the first cause, and an abort cannot be undone. A wait
//           polls control and NCCL's own errors; aborting stops NCCL's running kernels.
#pragma once

#include <memory>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

struct NcclOptions {
  double deadline_seconds = 30;  // how long a wait on the host may last before the ranks compare progress
};

// Collective. `control` must outlive the result. Throws Unsupported, with the reason, if the GPU or NCCL
// cannot be used. NCCL is loaded from libnccl.so.2, or from the file named by the variable
// EVENKEEL_NCCL_LIBRARY.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& control, int gpu,
                                                     const NcclOptions& options = {});

}  // namespace evenkeel
