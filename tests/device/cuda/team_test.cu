// Teams on the device compared with the team of one lane on the host.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "evenkeel/device/cuda/team.h"
#include "tests/support/device_memory.h"
#include "tests/support/gpu.h"

namespace evenkeel::cuda {
namespace {

constexpr int kResults = 5;

// Calls every method of a team. Values are scanned in place; results are the same on all lanes.
template <class Team>
EVENKEEL_HOST_DEVICE void exercise(const Team& team, std::int64_t* before, int* narrow, int n,
                                   std::int64_t* results) {
  std::int64_t sum = 0;
  std::int64_t least = INT64_MAX;
  std::int64_t largest = INT64_MIN;
  team.for_each(n, [&](int i) {
    sum += before[i];
    least = before[i] < least ? before[i] : least;
    largest = largest < before[i] ? before[i] : largest;
  });
  sum = team.sum(sum);
  least = team.min(least);
  largest = team.max(largest);
  const std::int64_t of_before = exclusive_scan(team, before, n);
  const int of_narrow = exclusive_scan(team, narrow, n);
  if (team.rank() == team.size() - 1) {
    results[0] = sum;
    results[1] = least;
    results[2] = largest;
    results[3] = of_before;
    results[4] = of_narrow;
  }
}

__global__ void exercise_block(std::int64_t* before, int* narrow, int n, std::int64_t* results) {
  __shared__ BlockTeam::Scratch scratch;
  exercise(BlockTeam(scratch), before, narrow, n, results);
}

__global__ void exercise_warp(std::int64_t* before, int* narrow, int n, std::int64_t* results) {
  exercise(WarpTeam(), before, narrow, n, results);
}

struct Case {
  std::vector<std::int64_t> before;
  std::vector<int> narrow;
  std::vector<std::int64_t> results = std::vector<std::int64_t>(kResults);
  bool operator==(const Case&) const = default;
};

Case make_case(int n) {
  std::mt19937_64 random(static_cast<std::uint64_t>(n));
  Case made;
  for (int i = 0; i < n; ++i) {
    made.before.push_back(static_cast<std::int64_t>(random() >> 8) - (std::int64_t{1} << 55));
    made.narrow.push_back(static_cast<int>(random() % 1000));
  }
  return made;
}

void exercise_on_device(Case& given, int threads) {
  const int n = static_cast<int>(given.before.size());
  const testing::DeviceMemory<std::int64_t> before(std::span<const std::int64_t>(given.before));
  const testing::DeviceMemory<int> narrow(std::span<const int>(given.narrow));
  const testing::DeviceMemory<std::int64_t> results(std::span<const std::int64_t>(given.results));
  if (threads == 0) {
    exercise_warp<<<1, 32>>>(before.data(), narrow.data(), n, results.data());
  } else {
    exercise_block<<<1, static_cast<unsigned>(threads)>>>(before.data(), narrow.data(), n, results.data());
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  given = {before.read(), narrow.read(), results.read()};
}

TEST(DeviceTeams, GiveTheHostTeamsIntegers) {
  SKIP_WITHOUT_GPU();
  for (int n : {0, 1, 2, 31, 32, 33, 64, 100, 384, 1023, 1024, 1025, 5000}) {
    const Case given = make_case(n);
    Case expected = given;
    exercise(HostTeam(), expected.before.data(), expected.narrow.data(), n, expected.results.data());
    for (int threads : {0, 32, 64, 128, 256, 512, 1024}) {
      Case got = given;
      exercise_on_device(got, threads);
      EXPECT_EQ(got, expected) << n << " elements, " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace evenkeel::cuda
