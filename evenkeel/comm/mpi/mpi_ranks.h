// Ranks as processes, on one host or many, over the MPI that starts them:
//
//   run_mpi_ranks([&](Communicator& comm) { ... });   // in a program that mpirun started
//
// Beyond what comm/communicator.h says of every backend:
// Streams   CpuStreams, each drained by the rank's own thread, in Event::wait() and Stream::synchronize().
// Progress  A rank's bytes move while it is inside a call or a wait: all that it has posted, whichever it
//           waits for. Work that takes long without either calls throw_if_aborted() now and then, which moves
//           them as well. Within a host, where MPI lets a receiver read the sender's memory, no such help is
//           needed; between hosts it is.
// Sizes     Any, also above 2^31 bytes. The receiver finds a message of another size than it expects.
// Waiting   A rank that waits polls; where ranks share cores, it gives its core away between polls.
// Deadline  The rank that is named is the one at the root of the delay: whoever waits too long asks all
//           others whom they wait for. A rank that does not answer (it computes, is stopped or dead) waits
//           for nobody. Time in which the process itself was stopped does not count.
// Errors    Where two ranks fail at the same moment, ranks may name either.
// Unwinding When a call or a wait throws CommError, or abort() returns, MPI reads and writes none of the
//           rank's bytes any more. For that, ranks that stop wait for one another, at most for the deadline,
//           and not for a rank that did not answer. Where one did not, it may still hold on to bytes: MPI is
//           not called again in this process, nor ended, and mpirun then ends the job.
//           A stream that ends with unfinished operations that a peer could still need aborts; where that is
//           in unwinding, the others hear of the operation, not of the exception.
// Messages  One that is sent and never received is an error, at the end, on all ranks.
// Deaths    Open MPI 4.1 ends the whole job soon after one of its processes dies, and says which. Only under
//           mpirun's --mca orte_enable_recovery 1 do the others live to name it, soon after the deadline;
//           mpirun then exits with 0, and on several hosts not at all. A rank that dies before run_mpi_ranks
//           has begun on all has no name (peer() -1). MPI_Init and MPI_Finalize wait for every rank, without
//           a deadline. docs/errors.md says more.
// Signals   Where SIGPIPE would end the process, it is ignored from the first use on: Open MPI writes to
//           sockets of peers that have died.
#pragma once

#include <functional>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

struct MpiOptions {
  double deadline_seconds = 30;  // how long any one operation may keep a rank waiting
  // Fortran's handle (MPI_Comm_c2f) of the communicator whose ranks take part. Default: MPI_COMM_WORLD.
  const int* communicator = nullptr;
};

// Collective, and not within itself: runs `body` on this process's rank, and returns when all ranks' bodies
// have ended, or throws on all of them: on a rank whose body threw, that exception; on the others CommError
// with it as the cause. (A body that calls abort() and returns just returns.) The end is a wait like any
// other, with the same deadline.
//
// Starts MPI where it is not started yet; it then ends with the process. It is used by one thread at a time
// (MPI_THREAD_FUNNELED): the caller's, which must be the one that started it. Without mpirun there is one
// rank.
//
// Throws Unsupported where MPI cannot be started, or cannot be used any more.
void run_mpi_ranks(const std::function<void(Communicator&)>& body, const MpiOptions& options = {});

}  // namespace evenkeel
