// The team of one lane, with which device algorithms are tested on the host.
#include "evenkeel/device/cuda/team.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace evenkeel::cuda {
namespace {

TEST(HostTeam, VisitsEveryIndexOnceInOrder) {
  std::vector<int> visited;
  HostTeam().for_each(5, [&](int i) { visited.push_back(i); });
  EXPECT_EQ(visited, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(HostTeam, ScansAsTheStandardLibraryDoes) {
  std::mt19937_64 random(1);
  for (int n = 0; n < 70; ++n) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(n));
    for (std::int64_t& value : values) value = static_cast<std::int64_t>(random() % 1000) - 500;
    std::vector<std::int64_t> before = values;
    const std::int64_t sum = std::accumulate(values.begin(), values.end(), std::int64_t{0});
    EXPECT_EQ(exclusive_scan(HostTeam(), before.data(), n), sum);
    std::vector<std::int64_t> expected(values.size());
    std::exclusive_scan(values.begin(), values.end(), expected.begin(), std::int64_t{0});
    EXPECT_EQ(before, expected) << n;
  }
}

}  // namespace
}  // namespace evenkeel::cuda
