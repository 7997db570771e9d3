#include "evenkeel/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

namespace evenkeel {

int usable_cores() {
  // The kernel refuses a set that is smaller than its own.
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> cores(sets);
    const std::size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, cores.data()) == 0) return std::max(1, CPU_COUNT_S(bytes, cores.data()));
    if (errno != EINVAL) break;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace evenkeel
