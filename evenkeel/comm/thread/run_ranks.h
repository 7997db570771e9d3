// Ranks as threads of one process: nothing to start, real messages, real races, and sanitizers that work.
//
//   run_ranks(8, [&](Communicator& comm) { ... });   // the same lines run on every rank
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
