#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace evenkeel::cli {

Progress progress_line(std::string what) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [what = std::move(what)](int done, int of) {
    constexpr const char* wipe = "\r\033[K";
    if (done < of)
      fmt::print(stderr, "{}{} {}/{}", wipe, what, done, of);
    else
      fmt::print(stderr, "{}", wipe);
    std::fflush(stderr);
  };
}

}  // namespace evenkeel::cli
