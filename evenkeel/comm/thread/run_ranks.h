// Ranks as threads of one process: nothing to start, real messages, real races, and sanitizers that work.
//
//   run_ranks(8, [&](Communicator& comm) { ... });   // the same lines run on every rank
//
// Beyond what comm/communicator.h says of every backend:
// Streams   CpuStream and DeviceStream. A CpuStream is drained by the rank's own thread, inside Event::wait()
//           and Stream::synchronize(). What a peer reads from this rank needs no help from it, so peers
//           proceed while this rank computes. A rank that waits for one operation serves all that it has
//           posted, so ranks may wait in different orders.
// Devices   On a DeviceStream all bytes are the device's. Source bytes are ready, and destination bytes
//           written, in the order of the stream, so that nothing needs Event::wait() but the host itself.
//           Operations posted to one stream are matched in that order: the next one, or any other work for
//           the stream, first takes the rank's thread through those before it.
// Deadline  The rank that is named is the one at the root of the delay, not one that itself waits for
//           another. Time in which the process did not run, stopped and continued, does not count.
// Unwinding When a call or a wait throws CommError, or abort() returns, no peer reads this rank's bytes any
//           more, on any communicator of the root. A stream that ends, or a communicator, withdraws what it
//           had not finished; if a peer could still need that, the next call of this rank aborts.
#pragma once

#include <functional>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

struct ThreadOptions {
  double deadline_seconds = 30;  // how long any one operation may keep a rank waiting
};

// Runs `body` once on each of `ranks` threads (at least 1; more threads than cores is usual: a rank that
// waits sleeps) and returns when all have ended.
//
// A body that throws ends all ranks: calls of the others, blocked or later, throw CommError with that rank
// as peer() and its message. What is thrown here in the end is the exception that came first, as it was.
//
// Throws Unsupported, with how many could be made, where the system gives fewer threads.
//
// The communicator, and all that are split from it, are for the rank's own thread and end with the body.
//
// A body must not let bytes that it has posted go away while an exception passes: declare a stream after the
// buffers it works on (it withdraws what is unfinished as it ends), or call Communicator::abort() first.
void run_ranks(int ranks, const std::function<void(Communicator&)>& body, const ThreadOptions& options = {});

}  // namespace evenkeel
