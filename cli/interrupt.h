// Signals that ask the command to end. The command removes unfinished outputs and ends by that signal. While
// an Interrupt exists, the first of its signals instead asks the work to stop and to keep its best result.
#pragma once

#include <csignal>
#include <initializer_list>
#include <stop_token>
#include <vector>

namespace evenkeel::cli {

// Starts a thread that waits for these signals, except those that the parent ignored or blocked. Call it
// before any other thread starts, since threads inherit the signal mask. Also ignores SIGXFSZ: a write above
// the file size limit then fails instead of ending the command.
void watch_signals();

// At most one at a time.
class Interrupt {
 public:
  explicit Interrupt(std::initializer_list<int> signals);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  bool stop_requested() const { return source_.stop_requested(); }

  // Asks the work to stop if `signal` is one of `signals` and the first of them to arrive. Returns whether it
  // asked.
  bool request_stop(int signal);

 private:
  std::vector<int> signals_;
  std::stop_source source_;
};

}  // namespace evenkeel::cli
