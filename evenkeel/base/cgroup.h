// Limits that the control groups of this process set: those of a container, a job or a service. sysconf() and
// /proc/meminfo do not show them. A process that goes over the memory limit is killed without a message.
//
// Method  /proc/self/cgroup names the group, in version 2 (memory.max, memory.high, cpu.max) or 1
//         (memory.limit_in_bytes, cpu.cfs_quota_us). The group and all above it count. A container may not
//         see its groups by the names that the host has for them: folders that are not there are passed over,
//         and its own group is what it sees as the root.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace evenkeel {

struct CgroupLimits {
  std::optional<std::int64_t> memory_bytes;  // that all processes of the tightest group may hold
  // Bytes that these processes may still take: the least of any group. Memory in which the kernel only caches
  // files counts as free.
  std::optional<std::int64_t> free_memory_bytes;
  std::optional<double> cores;  // of the tightest group
};

// `root` is put before /proc and /sys, for tests. A file that cannot be read sets no limit.
CgroupLimits read_cgroup_limits(const std::string& root = "");

}  // namespace evenkeel
