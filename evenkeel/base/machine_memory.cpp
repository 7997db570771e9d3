#include "evenkeel/base/machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "evenkeel/base/cgroup.h"

namespace evenkeel {

namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

template <class Resource>
std::int64_t limit_of(Resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(kNoLimit)) return kNoLimit;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

std::int64_t address_limit() {
  return limit_of(RLIMIT_AS);
}

std::int64_t data_limit() {
  return limit_of(RLIMIT_DATA);
}

// Bytes of address space in use, and how many of them count as data.
struct InUse {
  std::int64_t addresses = 0;
  std::int64_t data = 0;
};
InUse in_use() {
  // Pages: size, resident, shared, text, (unused), data and stack.
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, skipped = 0, data = 0;
  if (!(statm >> size >> skipped >> skipped >> skipped >> skipped >> data)) return {};
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  return {size * page, data * page};
}

std::int64_t physical_bytes() {
  return std::int64_t{sysconf(_SC_PHYS_PAGES)} * std::int64_t{sysconf(_SC_PAGESIZE)};
}

std::int64_t machine_free_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name, unit;
  std::int64_t kib = 0, memory = -1, swap = 0;
  while (meminfo >> name >> kib) {
    if (name == "MemAvailable:") memory = kib * 1024;
    if (name == "SwapFree:") swap = kib * 1024;
    std::getline(meminfo, unit);
  }
  return memory < 0 ? physical_bytes() : memory + swap;
}

std::int64_t left_of(std::int64_t limit, std::int64_t used) {
  return limit == kNoLimit ? kNoLimit : std::max<std::int64_t>(limit - used, 0);
}

}  // namespace

std::int64_t usable_memory_bytes() {
  const std::int64_t group = read_cgroup_limits().memory_bytes.value_or(kNoLimit);
  return std::min({physical_bytes(), group, address_limit(), data_limit()});
}

FreeMemory free_memory() {
  FreeMemory least = {machine_free_bytes(), "the machine's free memory is"};
  const auto consider = [&](std::int64_t bytes, const char* because) {
    if (bytes < least.bytes) least = {bytes, because};
  };
  consider(read_cgroup_limits().free_memory_bytes.value_or(kNoLimit), "the container's limit leaves");
  const InUse used = in_use();
  consider(left_of(address_limit(), used.addresses), "`ulimit -v` leaves");
  consider(left_of(data_limit(), used.data), "`ulimit -d` leaves");
  return least;
}

std::int64_t free_address_bytes() {
  return left_of(address_limit(), in_use().addresses);
}

}  // namespace evenkeel
