// Ranks as threads of one process: nothing to start, but real messages, real races, and working sanitizers.
//
//   run_ranks(8, [&](Communicator& comm) { ... });   // the same lines run on every rank
//
// In addition to comm/communicator.h:
// Streams   CpuStream and DeviceStream. The rank's own thread runs the operations of a CpuStream, inside
//           Event::wait() and Stream::synchronize(). Peers read from this rank's memory without its help, so
//           they proceed while it computes. A rank that waits for one operation serves all that it has
//           posted, so ranks may wait in different orders.
// Devices   On a DeviceStream all bytes are in device memory. Source bytes are ready, and destination bytes
//           written, in stream order, so only the host needs Event::wait(). Operations posted to one stream
//           are matched in that order: the next operation, or other work for the stream, first makes the
//           rank's thread complete the earlier ones.
// Deadline  The error names the rank at the root of the delay, not one that itself waits for another. Time in
//           which the process was stopped does not count.
// Unwinding When a call or a wait throws CommError, or abort() returns, no peer reads this rank's bytes any
//           more, on any communicator of the root. A stream or communicator that is destroyed withdraws its
//           unfinished operations. If a peer could still need one of them, the next call of this rank aborts.
#pragma once

#include <functional>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

struct ThreadOptions {
  double deadline_seconds = 30;  // the longest that one operation may keep a rank waiting
};

// Runs `body` once on each of `ranks` threads and returns when all have ended. `ranks` is at least 1; more
// threads than cores is usual, since a waiting rank sleeps.
//
// A body that throws ends all ranks: blocked and later calls of the others throw CommError with that rank as
// peer() and its message. run_ranks() then rethrows the exception that came first, unchanged.
//
// Throws Unsupported, with the number of threads made, if the system gives too few threads.
//
// The communicator, and all that are split from it, are for the rank's own thread and end with the body.
//
// A body must not free bytes that it has posted while an exception unwinds. Either declare a stream after the
// buffers it works on (its destructor withdraws unfinished operations), or call Communicator::abort() first.
void run_ranks(int ranks, const std::function<void(Communicator&)>& body, const ThreadOptions& options = {});

}  // namespace evenkeel
