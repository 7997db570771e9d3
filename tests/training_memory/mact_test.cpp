// Chunk tuning beside its definition: the least bin whose chunk fits.
#include "evenkeel/training_memory/mact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "evenkeel/base/error.h"

namespace evenkeel {
namespace {

const std::vector<std::int64_t> bins = {1, 2, 4, 8};

TEST(Mact, ChoosesTheLeastBinWhoseChunkFits) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 20000; ++trial) {
    const auto received = static_cast<std::int64_t>(random() % 5000);
    const auto most = static_cast<std::int64_t>(random() % 3000);
    const MactChoice choice = mact(received, most, bins);
    const auto fits = [&](std::int64_t chunks) { return (received + chunks - 1) / chunks <= most; };
    const auto least = std::ranges::find_if(bins, fits);
    EXPECT_EQ(choice.promised, least != bins.end()) << received << " rows, " << most << " fit";
    EXPECT_EQ(choice.chunks, least != bins.end() ? *least : 8) << received << " rows, " << most << " fit";
  }
}

TEST(Mact, SaysThatBeyondTheLargestBinNothingIsPromised) {
  EXPECT_EQ(mact(800, 100, bins), (MactChoice{.least_chunks = 8, .chunks = 8, .promised = true}));
  EXPECT_EQ(mact(801, 100, bins), (MactChoice{.least_chunks = 9, .chunks = 8, .promised = false}));
  EXPECT_EQ(mact(1, 0, bins), (MactChoice{.least_chunks = 0, .chunks = 8, .promised = false}));
  EXPECT_EQ(mact(0, 0, bins), (MactChoice{.least_chunks = 1, .chunks = 1, .promised = true}));
}

TEST(Mact, BinsThatDoNotAscendAreRefused) {
  for (const std::vector<std::int64_t>& wrong : {std::vector<std::int64_t>{}, {0, 1}, {-1}, {1, 1}, {4, 2}})
    EXPECT_THROW(mact(10, 10, wrong), InvalidArgument);
  EXPECT_THROW(mact(-1, 10, bins), InvalidArgument);
  EXPECT_EQ(mact(10, 3, std::vector<std::int64_t>{3, 5}).chunks, 5);
}

}  // namespace
}  // namespace evenkeel
