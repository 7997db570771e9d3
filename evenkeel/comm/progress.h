// Finds the rank that keeps the others waiting, for ranks that wait on devices. Each rank counts the
// operations it has handed over; when a wait lasts too long, the ranks compare their counts.
#pragma once

#include <cstdint>
#include <memory>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

class Progress {
 public:
  // Collective. `control` is a communicator on the ranks' hosts, and must outlive this.
  explicit Progress(Communicator& control) : control_(control), mine_(control.split(0)) {}

  void count_operation(const char* name) {
    name_ = name;
    ++count_;
  }
  const char* name() const { return name_; }

  // Throws if any rank has aborted control.
  void throw_if_aborted() { control_.throw_if_aborted(name_); }

  // Call after a wait of `seconds` that should have ended. Always throws CommError, the same on all ranks
  // that call it. A rank that does not call it within control's deadline is blamed. If all call it, the rank
  // that has handed over the fewest operations is blamed, or no rank if the counts are equal.
  [[noreturn]] void find_culprit(double seconds);

  // Aborts control with a cause, and throws it.
  [[noreturn]] void fail(const std::string& cause, double seconds);

 private:
  Communicator& control_;
  std::unique_ptr<Communicator> mine_;  // used only here, so that nothing else matches its messages
  const char* name_ = "set-up";
  std::int64_t count_ = 0;
};

}  // namespace evenkeel
