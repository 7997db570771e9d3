// Limits of control groups, read from a file tree that imitates /proc and /sys.
#include "evenkeel/base/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace evenkeel {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

class ControlGroups : public testing::Test {
 protected:
  ControlGroups()
      : root_(std::filesystem::temp_directory_path() /
              ("cgroup-test-" + std::to_string(getpid()) + "-" +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~ControlGroups() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  CgroupLimits limits() const { return read_cgroup_limits(root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST_F(ControlGroups, WithoutAnyThereIsNoLimit) {
  EXPECT_FALSE(limits().memory_bytes.has_value());
  EXPECT_FALSE(limits().free_memory_bytes.has_value());
  EXPECT_FALSE(limits().cores.has_value());
}

TEST_F(ControlGroups, OfAllGroupsUpToTheRootTheTightestCounts) {
  write("proc/self/cgroup", "0::/pods/job/step\n");
  write("sys/fs/cgroup/pods/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/pods/job/step/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/pods/job/memory.max", std::to_string(4 * kGiB) + "\n");
  write("sys/fs/cgroup/pods/job/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/pods/memory.max", std::to_string(9 * kGiB) + "\n");
  write("sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
  EXPECT_EQ(limits().memory_bytes, 4 * kGiB);
  EXPECT_EQ(limits().cores, 1.5);
}

TEST_F(ControlGroups, TheLimitThatThrottlesCountsAsTheOneThatEnds) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", std::to_string(4 * kGiB) + "\n");
  write("sys/fs/cgroup/memory.high", std::to_string(3 * kGiB) + "\n");
  EXPECT_EQ(limits().memory_bytes, 3 * kGiB);
}

TEST_F(ControlGroups, WhatIsTakenIsNotFreeButForFilesThatTheKernelKeeps) {
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/memory.max", std::to_string(8 * kGiB) + "\n");
  write("sys/fs/cgroup/job/memory.current", std::to_string(5 * kGiB) + "\n");
  write("sys/fs/cgroup/job/memory.stat",
        "anon 3221225472\ninactive_file 1073741824\nactive_file 1073741824\n");
  EXPECT_EQ(limits().memory_bytes, 8 * kGiB);
  EXPECT_EQ(limits().free_memory_bytes, 5 * kGiB);
}

TEST_F(ControlGroups, AContainerThatSeesItsOwnGroupAsTheRootHasTheRootsLimit) {
  write("proc/self/cgroup", "0::/docker/0123abcd\n");
  write("sys/fs/cgroup/memory.max", std::to_string(2 * kGiB) + "\n");
  EXPECT_EQ(limits().memory_bytes, 2 * kGiB);
}

TEST_F(ControlGroups, ThoseOfTheFirstVersionCountAsWell) {
  write("proc/self/cgroup", "4:memory:/job\n2:cpu,cpuacct:/job\n0::/\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(6 * kGiB) + "\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(1 * kGiB) + "\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().memory_bytes, 6 * kGiB);
  EXPECT_EQ(limits().free_memory_bytes, 5 * kGiB);
  EXPECT_EQ(limits().cores, 2.0);
}

TEST_F(ControlGroups, WhatCannotBeReadIsNoLimit) {
  write("proc/self/cgroup", "no colon\n0:\n0::/job/\n");
  write("sys/fs/cgroup/job/memory.max", "lots\n");
  write("sys/fs/cgroup/job/cpu.max", "half\n");
  write("sys/fs/cgroup/cpu.max", "100000 0\n");
  EXPECT_FALSE(limits().memory_bytes.has_value());
  EXPECT_FALSE(limits().cores.has_value());
}

}  // namespace
}  // namespace evenkeel
