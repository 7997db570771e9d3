// Signals that ask the command to end. What is unfinished is removed, and the command ends by that signal;
// while an Interrupt lives, the first of its signals asks the work to stop instead, and to keep the best it
// has.
#pragma once

#include <csignal>
#include <initializer_list>
#include <stop_token>
#include <vector>

namespace evenkeel::cli {

// Has a thread of its own wait for these signals, but for those that the parent had ignored or blocked.
// Before any other thread begins, since threads inherit that they do not get them. A file that outgrows its
// limit no longer ends the command by a signal.
void watch_signals();

// At most one at a time.
class Interrupt {
 public:
  explicit Interrupt(std::initializer_list<int> signals);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  bool asked() const { return source_.stop_requested(); }

  // Whether the signal is one of these, and the first; then the work has been asked.
  bool take(int signal);

 private:
  std::vector<int> signals_;
  std::stop_source source_;
};

}  // namespace evenkeel::cli
