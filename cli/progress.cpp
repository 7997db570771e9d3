#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace evenkeel::cli {

namespace {

constexpr const char* kWipe = "\r\033[K";

bool on_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

}  // namespace

std::function<void(int, int)> progress_line(std::string what) {
  if (!on_terminal()) return {};
  return [what = std::move(what)](int done, int of) {
    if (done < of)
      fmt::print(stderr, "{}{} {}/{}", kWipe, what, done, of);
    else
      fmt::print(stderr, "{}", kWipe);
    std::fflush(stderr);
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
    fmt::print(stderr, "{}{}: best {:.6g}, bound {:.6g}, gap {:.2f} %, {:.0f} s", kWipe, what, objective,
               bound, gap, seconds);
    std::fflush(stderr);
  };
}

void wipe_line() {
  if (!on_terminal()) return;
  fmt::print(stderr, "{}", kWipe);
  std::fflush(stderr);
}

}  // namespace evenkeel::cli
