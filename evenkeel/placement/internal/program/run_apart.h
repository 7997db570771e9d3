// Runs a solver on a thread of its own, so that the caller can go on without it.
//
// The solver looks at callbacks between its steps, and some steps (the linear program at the root of a tree,
// presolve) take many seconds without. Whoever asked to stop is not to wait for those: the caller goes on
// with what it has, and the thread ends at its next look. Where the program ends before, the thread is not
// waited for either.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "evenkeel/placement/internal/program/monitor.h"
#include "evenkeel/placement/internal/program/solve.h"

namespace evenkeel::exact {

// The messages between the two threads. The object must live, with all that the work uses, until the work
// ends.
class Apart {
 public:
  // For the work: whether to stop, and how far it is.
  bool must_stop();
  void tell(double objective, double bound);

 private:
  friend bool run_apart(const std::shared_ptr<Apart>& apart, std::function<void()> work,
                        const ProgramOptions& options, const Monitor& monitor);
  void ask_to_stop();
  void end(std::exception_ptr error);
  bool wait(double unit, const Monitor& monitor, double most_seconds);

  std::mutex mutex_;
  std::condition_variable ended_changed_;
  std::exception_ptr error_;
  bool ended_ = false;
  bool stop_ = false;
  bool has_news_ = false;
  double objective_ = 0;
  double bound_ = 0;
};

// True: the work has ended. False: it goes on for a while, and nothing it touches may be looked at. Rethrows
// what the work throws. Progress is reported by the calling thread.
bool run_apart(const std::shared_ptr<Apart>& apart, std::function<void()> work, const ProgramOptions& options,
               const Monitor& monitor);

}  // namespace evenkeel::exact
