#include "cli/interrupt.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <utility>

#include "evenkeel/base/system_limits.h"

namespace evenkeel::cli {

namespace {

volatile std::sig_atomic_t signal_raised = 0;

extern "C" void note_signal(int signal) {
  signal_raised = signal;
}

template <class Body>
std::jthread watching(Body body) {
  try {
    return std::jthread(std::move(body));
  } catch (const std::system_error& error) {
    throw too_few_threads(1, 0, "to watch for signals", error);
  }
}

}  // namespace

Interrupt::Interrupt(std::initializer_list<int> signals) {
  signal_raised = 0;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one kills
  sigemptyset(&action.sa_mask);
  for (int signal : signals) {
    before_.emplace_back(signal, decltype(action){});
    sigaction(signal, &action, &before_.back().second);
  }
  watch_ = watching([this](const std::stop_token& done) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!done.stop_requested())
      if (wake.wait_for(lock, done, std::chrono::milliseconds(20), [] { return signal_raised != 0; })) {
        source_.request_stop();
        return;
      }
  });
}

Interrupt::~Interrupt() {
  for (const auto& [signal, action] : before_) sigaction(signal, &action, nullptr);
}

void Interrupt::check() const {
  if (signal_raised != 0) throw Interrupted{};
}

void Interrupt::die() const {
  const int signal = signal_raised;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  std::abort();
}

}  // namespace evenkeel::cli
