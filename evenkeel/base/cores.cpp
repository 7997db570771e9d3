#include "evenkeel/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <thread>
#include <vector>

#include "evenkeel/base/cgroup.h"

namespace evenkeel {

namespace {

constexpr double kMostCores = 1 << 20;

int bound_cores() {
  // The kernel refuses a CPU set that is smaller than its own.
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> cores(sets);
    const std::size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, cores.data()) == 0) return std::max(1, CPU_COUNT_S(bytes, cores.data()));
    if (errno != EINVAL) break;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// A quota of 1.5 cores keeps two threads busy for most of the time.
int cores_of_quota() {
  const double cores = read_cgroup_limits().cores.value_or(kMostCores);
  return static_cast<int>(std::clamp(std::ceil(cores), 1.0, kMostCores));
}

}  // namespace

int usable_cores() {
  static const int quota = cores_of_quota();
  return std::min(bound_cores(), quota);
}

}  // namespace evenkeel
