// Limits that this process's control groups (cgroups) set, for a container, a job or a service. sysconf() and
// /proc/meminfo do not show them. A process that exceeds the memory limit is killed without a message.
//
// Method  /proc/self/cgroup names the group, in version 2 (memory.max, memory.high, cpu.max) or 1
//         (memory.limit_in_bytes, cpu.cfs_quota_us). The limits of the group and of all its parents count.
//         Inside a container these names may not exist: missing folders are skipped, and the container sees
//         its own group as the root.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace evenkeel {

struct CgroupLimits {
  std::optional<std::int64_t> memory_bytes;  // the tightest limit on all processes of a group
  // Bytes that may still be allocated: the least over all groups. The kernel's file cache counts as free.
  std::optional<std::int64_t> free_memory_bytes;
  std::optional<double> cores;  // CPU quota of the tightest group
};

// `root` is prefixed to /proc and /sys, for tests. A file that cannot be read sets no limit.
CgroupLimits read_cgroup_limits(const std::string& root = "");

}  // namespace evenkeel
