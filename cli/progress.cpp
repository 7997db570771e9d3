#include "cli/progress.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "cli/output.h"

namespace evenkeel::cli {

namespace {

constexpr const char* kWipe = "\r\033[K";
constexpr std::size_t kMostBytes = 100;  // a line that wraps cannot be wiped away

std::atomic<bool> line_is_shown = false;

}  // namespace

std::function<void(int, int)> progress_line(std::string what) {
  if (!stderr_moves_cursor()) return {};
  using Clock = std::chrono::steady_clock;
  return
      [what = std::move(what), start = Clock::now(), last = Clock::time_point()](int done, int of) mutable {
        if (done >= of) return wipe_line();
        const auto now = Clock::now();
        if (now - last < std::chrono::milliseconds(100)) return;
        last = now;
        const double seconds = std::chrono::duration<double>(now - start).count();
        // Assumes that the rest goes as fast as the part done.
        const std::string left =
            seconds > 1 && done > 0 ? fmt::format(", {:.0f} s left", seconds / done * (of - done)) : "";
        show_line(fmt::format("{} {}/{}{}", what, done, of, left));
      };
}

std::function<void(double, double, double)> gap_line(std::string what) {
  if (!stderr_moves_cursor()) return {};
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
  if (!stderr_moves_cursor()) return;
  write_stderr(fmt::format("{}{}", kWipe, shown(text, kMostBytes)));
  line_is_shown = true;
}

void wipe_line() {
  if (!line_is_shown.exchange(false)) return;
  write_stderr(kWipe);
}

}  // namespace evenkeel::cli
