#include "cli/termination.h"

#include <csignal>
#include <cstdlib>

namespace evenkeel::cli {

namespace {

volatile std::sig_atomic_t signal_raised = 0;

void note(int signal) {
  signal_raised = signal;
}

}  // namespace

TerminationWatch::TerminationWatch() {
  signal_raised = 0;
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}

TerminationWatch::~TerminationWatch() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool TerminationWatch::raised() const {
  return signal_raised != 0;
}

void TerminationWatch::check() const {
  if (raised()) throw Terminated{};
}

void TerminationWatch::die() const {
  const int signal = signal_raised;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  std::abort();
}

}  // namespace evenkeel::cli
