// Ranks as processes, on one host or many, over the MPI that starts them:
//
//   run_mpi_ranks([&](Communicator& comm) { ... });   // in a program that mpirun started
//
// In addition to comm/communicator.h:
// Streams   CpuStreams. The rank's own thread runs their operations, in Event::wait() and
//           Stream::synchronize().
// Progress  A rank's bytes move only while it is inside a call or a wait. Then everything it has posted
//           moves, whichever operation it waits for. Long work between calls should call throw_if_aborted()
//           now and then, which also moves bytes. This is needed between hosts, but not within a host if MPI
//           lets a receiver read the sender's memory.
// Sizes     Any size, also above 2^31 bytes. The receiver detects a message whose size differs from the one
//           expected.
// Waiting   A waiting rank polls. Where ranks share cores, it yields its core between polls.
// Deadline  The error names the rank at the root of the delay: a rank that waits too long asks all others
//           whom they wait for. A rank that does not answer (it computes, is stopped or dead) counts as
//           waiting for nobody. Time in which the process itself was stopped does not count.
// Errors    If two ranks fail at the same moment, the other ranks may name either of them.
// Unwinding When a call or a wait throws CommError, or abort() returns, MPI no longer reads or writes the
//           rank's bytes. To reach that state, stopping ranks wait for one another, at most for the deadline,
//           but not for a rank that did not answer. If some rank did not answer, MPI may still hold bytes: it
//           is not called again in this process, not even to finalize it, and mpirun then ends the job.
//           A stream that is destroyed with unfinished operations that a peer may still need aborts. If that
//           happens during unwinding, the other ranks see the operation's name, not the exception's message.
// Messages  A message that is sent and never received is an error at the end, on all ranks.
// Deaths    Open MPI 4.1 ends the whole job soon after one of its processes dies, and reports which one. Only
//           with mpirun's --mca orte_enable_recovery 1 do the others survive to name it, soon after the
//           deadline; mpirun then exits with 0, and on several hosts does not exit at all. A rank that dies
//           before run_mpi_ranks has begun on all ranks is not named (peer() is -1). MPI_Init and
//           MPI_Finalize wait for every rank, without a deadline. See docs/errors.md.
// Signals   SIGPIPE is ignored from the first use on, if it would end the process: Open MPI writes to sockets
//           of peers that have died.
#pragma once

#include <functional>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

struct MpiOptions {
  double deadline_seconds = 30;  // the longest that one operation may keep a rank waiting
  // Fortran handle (MPI_Comm_c2f) of the communicator whose ranks take part. Default: MPI_COMM_WORLD.
  const int* communicator = nullptr;
};

// Runs `body` on this process's rank. Collective; calls cannot be nested. Returns when the bodies of all
// ranks have ended. If a body throws, its rank throws the same exception, and the other ranks throw CommError
// with it as the cause. (If a body calls abort() and returns, its rank just returns.) The wait for the end
// has the same deadline as any other wait.
//
// Starts MPI if it is not started yet; MPI then ends with the process. Only one thread may use MPI at a time
// (MPI_THREAD_FUNNELED): the caller's, which must be the one that started it. Without mpirun there is one
// rank.
//
// Throws Unsupported if MPI cannot be started or can no longer be used.
void run_mpi_ranks(const std::function<void(Communicator&)>& body, const MpiOptions& options = {});

}  // namespace evenkeel
