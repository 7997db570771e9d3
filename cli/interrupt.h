// Ctrl-C that asks instead of killing: long work stops and keeps the best it has. A second one ends the
// program as ever.
#pragma once

#include <csignal>
#include <stop_token>
#include <thread>

namespace evenkeel::cli {

// While one lives, the first SIGINT asks `token()` to stop. At most one at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  bool asked() const { return source_.stop_requested(); }

 private:
  std::stop_source source_;
  struct sigaction before_ = {};
  std::jthread watch_;  // a signal handler itself may do next to nothing
};

}  // namespace evenkeel::cli
