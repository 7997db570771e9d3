// Ctrl-C and a polite kill, for work that cleans up and then ends as if killed.
#pragma once

namespace evenkeel::cli {

// Thrown where the work looks whether it should go on.
struct Terminated {};

// While one lives, SIGINT and SIGTERM are noted and do nothing else.
class TerminationWatch {
 public:
  TerminationWatch();
  ~TerminationWatch();
  TerminationWatch(const TerminationWatch&) = delete;
  TerminationWatch& operator=(const TerminationWatch&) = delete;

  bool raised() const;
  // Throws Terminated if a signal has come.
  void check() const;
  // Ends the program as the signal that came would have.
  [[noreturn]] void die() const;
};

}  // namespace evenkeel::cli
