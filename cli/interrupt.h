// A signal that asks instead of killing: long work stops, and keeps the best it has or cleans up. A second
// one ends the program as ever.
#pragma once

#include <csignal>
#include <initializer_list>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace evenkeel::cli {

// Thrown where the work looks whether it should go on.
struct Interrupted {};

// While one lives, the first of these signals asks `token()` to stop. At most one at a time.
class Interrupt {
 public:
  explicit Interrupt(std::initializer_list<int> signals);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  bool asked() const { return source_.stop_requested(); }
  // Throws Interrupted if a signal has come.
  void check() const;
  // Ends the program as the signal that came would have.
  [[noreturn]] void die() const;

 private:
  std::stop_source source_;
  std::vector<std::pair<int, struct sigaction>> before_;
  std::jthread watch_;  // a signal handler itself may do next to nothing
};

}  // namespace evenkeel::cli
