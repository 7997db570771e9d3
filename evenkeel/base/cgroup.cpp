#include "evenkeel/base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace evenkeel {

namespace {

template <class Value>
void take_least(std::optional<Value>& least, Value value) {
  least = least ? std::min(*least, value) : value;
}

// The number in a file; nothing for "max" or a missing file.
std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

// Finds the line "name number" for the name `wanted` and returns its number; 0 if there is none.
std::int64_t entry_of(const std::string& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value)
    if (name == wanted) return value;
  return 0;
}

// The folders of a group and of all its parents, the root last: for "/a/b" base/a/b, base/a and base.
std::vector<std::string> folders_up(const std::string& base, std::string path) {
  std::vector<std::string> folders;
  while (!path.empty() && path != "/") {
    folders.push_back(base + path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  folders.push_back(base);
  return folders;
}

// Applies one memory limit of a group. Of the used bytes, `files` are file cache, which counts as free.
void note_memory(CgroupLimits& limits, std::int64_t limit, std::optional<std::int64_t> used,
                 std::int64_t files) {
  take_least(limits.memory_bytes, limit);
  const std::int64_t held = std::max<std::int64_t>(used.value_or(0) - files, 0);
  take_least(limits.free_memory_bytes, std::max<std::int64_t>(limit - held, 0));
}

void read_unified(CgroupLimits& limits, const std::string& folder) {
  for (const char* name : {"/memory.max", "/memory.high"}) {
    const std::optional<std::int64_t> limit = number_in(folder + name);
    if (!limit) continue;
    const std::string statistics = folder + "/memory.stat";
    note_memory(limits, *limit, number_in(folder + "/memory.current"),
                entry_of(statistics, "inactive_file") + entry_of(statistics, "active_file"));
  }
  std::ifstream cpu(folder + "/cpu.max");
  double quota = 0, period = 0;
  if (cpu >> quota >> period && quota > 0 && period > 0) take_least(limits.cores, quota / period);
}

void read_memory_controller(CgroupLimits& limits, const std::string& folder) {
  const std::optional<std::int64_t> limit = number_in(folder + "/memory.limit_in_bytes");
  // Without a limit, the file holds the largest multiple of a page that fits a long.
  constexpr std::int64_t kNone = std::int64_t{1} << 60;
  if (!limit || *limit >= kNone) return;
  const std::string statistics = folder + "/memory.stat";
  note_memory(limits, *limit, number_in(folder + "/memory.usage_in_bytes"),
              entry_of(statistics, "total_inactive_file") + entry_of(statistics, "total_active_file"));
}

void read_cpu_controller(CgroupLimits& limits, const std::string& folder) {
  const std::optional<std::int64_t> quota = number_in(folder + "/cpu.cfs_quota_us");
  const std::optional<std::int64_t> period = number_in(folder + "/cpu.cfs_period_us");
  if (quota && period && *quota > 0 && *period > 0)
    take_least(limits.cores, static_cast<double>(*quota) / static_cast<double>(*period));
}

bool has_controller(const std::string& list, std::string_view wanted) {
  std::istringstream in(list);
  for (std::string each; std::getline(in, each, ',');)
    if (each == wanted) return true;
  return false;
}

}  // namespace

CgroupLimits read_cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  std::ifstream groups(root + "/proc/self/cgroup");
  const std::string mounts = root + "/sys/fs/cgroup";
  // Each line is hierarchy:controllers:path; the unified hierarchy names no controllers.
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"", "/unified"})
        for (const std::string& folder : folders_up(mounts + mount, path)) read_unified(limits, folder);
    }
    if (has_controller(controllers, "memory"))
      for (const std::string& folder : folders_up(mounts + "/memory", path))
        read_memory_controller(limits, folder);
    if (has_controller(controllers, "cpu"))
      for (const char* mount : {"/cpu", "/cpu,cpuacct"})
        for (const std::string& folder : folders_up(mounts + mount, path))
          read_cpu_controller(limits, folder);
  }
  return limits;
}

}  // namespace evenkeel
