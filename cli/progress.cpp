#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <utility>

namespace evenkeel::cli {

namespace {

constexpr const char* kWipe = "\r\033[K";

std::atomic<bool> shown = false;

bool on_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

}  // namespace

std::function<void(int, int)> progress_line(std::string what) {
  if (!on_terminal()) return {};
  return [what = std::move(what)](int done, int of) {
    if (done < of)
      show_line(fmt::format("{} {}/{}", what, done, of));
    else
      wipe_line();
  };
}

std::function<void(double, double, double)> gap_line(std::string what) {
  if (!on_terminal()) return {};
  using Clock = std::chrono::steady_clock;
  return [what = std::move(what), last = Clock::time_point()](double objective, double bound,
                                                              double seconds) mutable {
    if (Clock::now() - last < std::chrono::milliseconds(200)) return;
    last = Clock::now();
    const double gap = objective > 0 ? 100 * (objective - bound) / objective : 0;
    show_line(fmt::format("{}: best {:.6g}, bound {:.6g}, gap {:.2f} %, {:.0f} s", what, objective, bound,
                          gap, seconds));
  };
}

void show_line(std::string_view text) {
  if (!on_terminal()) return;
  fmt::print(stderr, "{}{}", kWipe, text);
  std::fflush(stderr);
  shown = true;
}

void wipe_line() {
  if (!shown.exchange(false)) return;
  fmt::print(stderr, "{}", kWipe);
  std::fflush(stderr);
}

}  // namespace evenkeel::cli
