// The transposition of a quad's numbers; four host threads act as its lanes.
#include "evenkeel/compute/cuda/internal/quad.h"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <thread>
#include <vector>

namespace evenkeel::cuda {
namespace {

TEST(QuadTransposition, GivesEveryLaneTheBlockOfItsNumber) {
  std::array<std::array<float, 4>, 4> results;
  std::array<float, 4> mail;
  std::barrier barrier(4);
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < 4; ++lane)
    lanes.emplace_back([&, lane] {
      const auto exchange = [&](float value, int mask) {
        mail[static_cast<std::size_t>(lane)] = value;
        barrier.arrive_and_wait();
        const float got = mail[static_cast<std::size_t>(lane ^ mask)];
        barrier.arrive_and_wait();
        return got;
      };
      float numbers[4];
      for (int block = 0; block < 4; ++block) numbers[block] = static_cast<float>(10 * lane + block);
      transpose_round<1>(numbers, lane, exchange);
      transpose_round<2>(numbers, lane, exchange);
      for (std::size_t i = 0; i < 4; ++i) results[static_cast<std::size_t>(lane)][i] = numbers[i];
    });
  for (std::thread& lane : lanes) lane.join();
  for (std::size_t lane = 0; lane < 4; ++lane)
    for (std::size_t from = 0; from < 4; ++from)
      EXPECT_EQ(results[lane][from], static_cast<float>(10 * from + lane)) << lane << " " << from;
}

TEST(QuadTransposition, LeavesEightColumnsInTheirOrder) {
  const float even[] = {0, 2, 4, 6}, odd[] = {1, 3, 5, 7};
  const Eight columns = interleave(even, odd);
  for (int i = 0; i < kEight; ++i) EXPECT_EQ(columns.at[i], static_cast<float>(i));
}

}  // namespace
}  // namespace evenkeel::cuda
