#include "evenkeel/placement/internal/program/run_apart.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace evenkeel::exact {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kLook = std::chrono::milliseconds(20);
// So long work that was asked to stop, or whose time is over, may take to notice.
constexpr double kGraceSeconds = 0.25;
constexpr double kGraceAfterLimit = 0.75;

std::atomic<int> left_running = 0;

// Statics must not go away under a thread that still uses them: the process ends here, without them.
void end_at_once(int status, void*) {
  if (left_running == 0) return;
  std::fflush(nullptr);
  _exit(status);
}

void leave(std::thread thread) {
  static std::once_flag registered;
  std::call_once(registered, [] { on_exit(end_at_once, nullptr); });
  thread.detach();
}

}  // namespace

bool Apart::must_stop() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void Apart::ask_to_stop() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
}

void Apart::tell(double objective, double bound) {
  const std::lock_guard lock(mutex_);
  has_news_ = objective_ != objective || bound_ != bound;
  objective_ = objective;
  bound_ = bound;
}

void Apart::end(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  ended_ = true;
  ended_changed_.notify_all();
}

// True: it ended in time.
bool Apart::wait(double unit, const Monitor& monitor, double most_seconds) {
  const auto begin = Clock::now();
  std::optional<Clock::time_point> asked;
  std::unique_lock lock(mutex_);
  while (!ended_changed_.wait_for(lock, kLook, [this] { return ended_; })) {
    if (has_news_) {
      has_news_ = false;
      const auto [objective, bound] = std::pair(objective_ * unit, bound_ * unit);
      lock.unlock();
      monitor.report(objective, bound);
      lock.lock();
    }
    const auto now = Clock::now();
    if (!asked && monitor.stop_requested()) asked = now;
    stop_ = stop_ || asked.has_value();
    if (asked && Seconds(now - *asked).count() > kGraceSeconds) return false;
    if (Seconds(now - begin).count() > most_seconds + kGraceAfterLimit) return false;
  }
  return true;
}

bool run_apart(const std::shared_ptr<Apart>& apart, std::function<void()> work, const ProgramOptions& options,
               const Monitor& monitor) {
  std::thread thread;
  const auto run = [apart, work = std::move(work)]() mutable {
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;  // what it uses goes before it counts as ended, or with `apart`
    apart->end(error);
  };
  ++left_running;
  try {
    thread = std::thread([run]() mutable {
      {
        auto mine = std::move(run);
        mine();
      }
      --left_running;  // all that the work used is gone
    });
  } catch (const std::system_error&) {  // no more threads: then here
    --left_running;
    auto here = run;
    here();
    if (apart->error_) std::rethrow_exception(apart->error_);
    return true;
  }
  // Whatever ends the waiting, a thread that is not joined is left.
  bool ended = false;
  try {
    ended = apart->wait(options.unit, monitor, options.seconds);
  } catch (...) {
    apart->ask_to_stop();
    leave(std::move(thread));
    throw;
  }
  if (!ended) {
    apart->ask_to_stop();
    leave(std::move(thread));
    return false;
  }
  thread.join();
  if (apart->error_) std::rethrow_exception(apart->error_);
  return true;
}

}  // namespace evenkeel::exact
