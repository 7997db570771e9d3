// Streams, events and arenas of a GPU; and the error on a machine without a GPU.
#include "evenkeel/device/cuda/stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/device/arena.h"
#include "tests/support/device_values.h"
#include "tests/support/gpu.h"

namespace evenkeel {
namespace {

using testing::DeviceValues;
using Values = std::vector<std::int64_t>;

constexpr std::int64_t kMiB = 1 << 20;

Values random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Values values(count);
  for (std::int64_t& value : values) value = static_cast<std::int64_t>(random());
  return values;
}

TEST(Cuda, SaysWhyAGpuCannotBeUsed) {
  const int beyond = cuda::gpu_count();
  for (int gpu : {beyond, -1}) {
    try {
      CudaStream stream(gpu);
      FAIL() << "there is no GPU " << gpu;
    } catch (const Unsupported& error) {
      const std::string why = error.what();
      EXPECT_FALSE(why.empty());
      EXPECT_EQ(why, beyond == 0 ? cuda::why_no_gpu() : why);
    }
    EXPECT_THROW(Device::cuda(gpu), Unsupported);
  }
}

TEST(CudaStream, CopiesInOrderAndIsWaitedForByAnotherStream) {
  SKIP_WITHOUT_GPU();
  Arena arena(Device::cuda(), 256 * kMiB);
  CudaStream first;
  CudaStream second;
  const Values values = random_values(4 << 20, 1);
  const DeviceValues<std::int64_t> a(arena, first, values);
  const DeviceValues<std::int64_t> b(arena, first, values.size());
  const DeviceValues<std::int64_t> c(arena, second, values.size());
  first.copy(b.span().data(), a.span().data(), a.bytes().size());
  second.wait_for(first.mark());
  second.copy(c.span().data(), b.span().data(), b.bytes().size());
  EXPECT_EQ(c.read(), values);
}

TEST(CudaStream, KnowsWhenAnEventIsComplete) {
  SKIP_WITHOUT_GPU();
  CudaStream stream;
  const Event event = stream.mark();
  event.wait();
  EXPECT_TRUE(event.complete());
}

TEST(CudaStream, ReducesAsTheHostDoes) {
  SKIP_WITHOUT_GPU();
  Arena arena(Device::cuda(), 16 * kMiB);
  CudaStream stream;
  for (int parts : {1, 2, 5}) {
    for (std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
      const Values values = random_values(n * static_cast<std::size_t>(parts), n);
      const DeviceValues<std::int64_t> given(arena, stream, values);
      const DeviceValues<std::int64_t> reduced(arena, stream, n);
      for (Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max}) {
        Values expected(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
        for (std::size_t i = n; i < values.size(); ++i) {
          std::int64_t& total = expected[i % n];
          total = reduction == Reduction::sum
                      ? static_cast<std::int64_t>(static_cast<std::uint64_t>(total) +
                                                  static_cast<std::uint64_t>(values[i]))
                  : reduction == Reduction::min ? std::min(total, values[i])
                                                : std::max(total, values[i]);
        }
        stream.reduce(given.span().data(), parts, static_cast<std::int64_t>(n), ValueType::int64, reduction,
                      reduced.span().data());
        EXPECT_EQ(reduced.read(), expected) << parts << " parts of " << n;
      }
    }
  }
}

TEST(ArenaOfAGpu, LendsBytesThatHoldWhatIsWritten) {
  SKIP_WITHOUT_GPU();
  for (std::int64_t budget : {512 * kMiB, Arena::kNoBudget}) {
    Arena arena(Device::cuda(), budget);
    CudaStream stream;
    std::vector<Values> values;
    std::vector<DeviceValues<std::int64_t>> lent;
    for (std::uint64_t i = 0; i < 8; ++i) {
      values.push_back(random_values((i + 1) << 20, i));
      lent.emplace_back(arena, stream, values.back());
    }
    for (std::size_t i = 0; i < lent.size(); ++i) EXPECT_EQ(lent[i].read(), values[i]);
  }
}

TEST(ArenaOfAGpu, RefusesMoreThanTheGpuHas) {
  SKIP_WITHOUT_GPU();
  const std::int64_t available = Device::cuda().memory().available_bytes();
  EXPECT_THROW(Arena(Device::cuda(), 2 * available), Unsupported);
}

TEST(ArenaOfAGpu, LendsBytesAgainInTheOrderOfTwoStreams) {
  SKIP_WITHOUT_GPU();
  Arena arena(Device::cuda(), 64 * kMiB);
  CudaStream main;
  CudaStream side;
  const std::size_t count = 4 << 20;  // most of the arena, so that each round reuses the same bytes
  const Values values = random_values(count, 1);
  const Values others = random_values(count, 2);
  const DeviceValues<std::int64_t> kept(arena, main, std::size_t{8});
  for (int round = 0; round < 4; ++round) {
    Values seen(count);
    {
      const DeviceValues<std::int64_t> lent(arena, main, round % 2 == 0 ? values : others);
      StreamFork fork(main, side);
      side.copy(seen.data(), lent.span().data(), lent.bytes().size());
      fork.join();
    }
    main.synchronize();
    EXPECT_EQ(seen, round % 2 == 0 ? values : others) << "round " << round;
  }
}

}  // namespace
}  // namespace evenkeel
