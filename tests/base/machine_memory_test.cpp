// The available memory, seen by processes with their own resource limits.
#include "evenkeel/base/machine_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace evenkeel {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// True if `holds` returns true in a child process under this limit.
bool holds_under(int resource, std::int64_t bytes, const std::function<bool()>& holds) {
  const pid_t process = fork();
  if (process == 0) {
    rlimit limit{};
    getrlimit(resource, &limit);
    limit.rlim_cur = static_cast<rlim_t>(bytes);
    _exit(setrlimit(resource, &limit) == 0 && holds() ? 0 : 1);
  }
  int status = 0;
  return waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(MachineMemory, IsThere) {
  EXPECT_GT(usable_memory_bytes(), 0);
  EXPECT_GT(free_memory().bytes, 0);
}

TEST(MachineMemory, IsNoMoreThanTheLimitsOfTheProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve terabytes of address space";
#endif
  EXPECT_TRUE(holds_under(RLIMIT_AS, 900 * kMiB, [] {
    const FreeMemory free = free_memory();
    return usable_memory_bytes() == 900 * kMiB && free.bytes < 900 * kMiB && free.bytes > 100 * kMiB &&
           free.because.find("ulimit -v") != std::string::npos && free_address_bytes() < 900 * kMiB;
  }));
  EXPECT_TRUE(holds_under(RLIMIT_DATA, 300 * kMiB, [] {
    const FreeMemory free = free_memory();
    return usable_memory_bytes() == 300 * kMiB && free.bytes < 300 * kMiB && free.bytes > 100 * kMiB &&
           free.because.find("ulimit -d") != std::string::npos;
  }));
}

}  // namespace
}  // namespace evenkeel
