// Who keeps the others waiting, where ranks wait on devices that cannot tell: each counts what it has handed
// over, and when a wait has lasted too long they compare.
#pragma once

#include <cstdint>
#include <memory>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

class Progress {
 public:
  // Collective; `control` is a communicator on the ranks' hosts, and must outlive this.
  explicit Progress(Communicator& control) : control_(control), mine_(control.split(0)) {}

  void handed_over(const char* name) {
    name_ = name;
    ++count_;
  }
  const char* name() const { return name_; }

  // Throws if any rank has aborted control.
  void throw_if_aborted() { control_.throw_if_aborted(name_); }

  // For a wait of `seconds` that should have ended: always ends in a CommError, the same on all ranks that
  // ask. A rank that does not ask as well within control's deadline is to blame; where all do, the one that
  // has handed over least, or nobody where they agree.
  [[noreturn]] void find_blame(double seconds);

  // Aborts control with a cause, and throws it.
  [[noreturn]] void fail(const std::string& cause, double seconds);

 private:
  Communicator& control_;
  std::unique_ptr<Communicator> mine_;  // so that nothing else is matched with our question
  const char* name_ = "set-up";
  std::int64_t count_ = 0;
};

}  // namespace evenkeel
