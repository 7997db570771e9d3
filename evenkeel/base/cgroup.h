// What the control groups that this process is in allow it: the limits of a container, a job or a service,
// of which sysconf() and /proc/meminfo say nothing. Going over that of memory ends a process without a word.
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
  // What they may still take: the least of any group, where what the kernel only keeps of files can go.
  std::optional<std::int64_t> free_memory_bytes;
  std::optional<double> cores;  // of the tightest group
};

// `root` is put before /proc and /sys, for tests. What cannot be read is no limit.
CgroupLimits read_cgroup_limits(const std::string& root = "");

}  // namespace evenkeel
