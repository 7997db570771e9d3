#include "cli/interrupt.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace evenkeel::cli {

namespace {

volatile std::sig_atomic_t interrupted = 0;

extern "C" void note_interrupt(int) {
  interrupted = 1;
}

}  // namespace

Interrupt::Interrupt() {
  interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one kills
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_);
  watch_ = std::jthread([this](const std::stop_token& done) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!done.stop_requested())
      if (wake.wait_for(lock, done, std::chrono::milliseconds(20), [] { return interrupted != 0; })) {
        source_.request_stop();
        return;
      }
  });
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &before_, nullptr);
}

}  // namespace evenkeel::cli
