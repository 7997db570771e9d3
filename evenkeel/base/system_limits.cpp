#include "evenkeel/base/system_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>

namespace evenkeel {

namespace {

// " (now 1024)"; nothing where there is no limit.
std::string soft_limit(int resource, rlim_t unit = 1) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format(" (now {})", limit.rlim_cur / unit);
}

}  // namespace

std::string describe_errno(int error) {
  std::string said = std::generic_category().message(error);
  if (error == EMFILE)
    return fmt::format("{}: this process has as many files open as `ulimit -n`{} allows; raise that", said,
                       soft_limit(RLIMIT_NOFILE));
  if (error == ENFILE)
    return fmt::format(
        "{}: all processes together have as many files open as the machine's fs.file-max allows; raise that",
        said);
  return said;
}

Unsupported too_few_threads(int wanted, int made, const std::string& what_for,
                            const std::system_error& cause) {
  return Unsupported(
      fmt::format("{} threads are needed ({}), but only {} could be started ({}): raise `ulimit -u`{}, the "
                  "container's pids.max, or `ulimit -v`{} for their stacks",
                  wanted, what_for, made, std::generic_category().message(cause.code().value()),
                  soft_limit(RLIMIT_NPROC), soft_limit(RLIMIT_AS, 1024)));
}

}  // namespace evenkeel
