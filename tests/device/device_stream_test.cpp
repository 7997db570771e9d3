// Ordering of work on devices, tested on one that delays and reorders its work as far as it may.
#include "evenkeel/device/device_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/device/arena.h"
#include "tests/support/fake_device.h"

namespace evenkeel {
namespace {

using testing::FakeDevice;
using testing::FakeStream;

constexpr std::uint64_t kSeeds = 200;

class Failing final : public CpuOperation {
  void carry_out() override { throw std::runtime_error("no answer"); }
  void cancel() noexcept override {}
};

class Counting final : public CpuOperation {
 public:
  int carried_out = 0;
  int cancelled = 0;

 private:
  void carry_out() override { ++carried_out; }
  void cancel() noexcept override { ++cancelled; }
};

// Launches work on two streams with `order` between them. Returns the value that the second stream saw.
template <class Order>
int seen_by_second(std::uint64_t seed, Order order) {
  FakeDevice device(seed);
  FakeStream first(device);
  FakeStream second(device);
  int value = 0;
  int seen = -1;
  first.launch([&] { value = 1; });
  order(first, second);
  second.launch([&] { seen = value; });
  second.synchronize();
  return seen;
}

TEST(FakeDevice, ShowsAMissingWait) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
    wrong += seen_by_second(seed, [](FakeStream&, FakeStream&) {}) == 1 ? 0 : 1;
  EXPECT_GT(wrong, 0);
}

TEST(DeviceStream, KeepsWorkBackUntilAnotherStreamHasReachedAnEvent) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const int seen =
        seen_by_second(seed, [](FakeStream& first, FakeStream& second) { second.wait_for(first.mark()); });
    ASSERT_EQ(seen, 1) << "seed " << seed;
  }
}

TEST(DeviceStream, PassesOnWhatItWaitsForWhereItHasNoWorkOfItsOwn) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device(seed);
    FakeStream first(device);
    FakeStream between(device);
    FakeStream last(device);
    int value = 0;
    int seen = -1;
    first.launch([&] { value = 1; });
    between.wait_for(first.mark());
    last.wait_for(between.mark());
    last.launch([&] { seen = value; });
    last.synchronize();
    ASSERT_EQ(seen, 1) << "seed " << seed;
  }
}

TEST(DeviceStream, WaitsForEventsLongPast) {
  FakeDevice device(1);
  FakeStream stream(device);
  FakeStream other(device);
  int value = 0;
  int seen = -1;
  stream.launch([&] { value = 1; });
  const Event early = stream.mark();
  for (int i = 0; i < 500; ++i) static_cast<void>(stream.mark());
  other.wait_for(early);
  other.launch([&] { seen = value; });
  other.synchronize();
  EXPECT_EQ(seen, 1);
  early.wait();
  EXPECT_TRUE(early.complete());
}

TEST(DeviceStream, IsNotWaitedForByWhoMarksIt) {
  FakeDevice device(1);
  FakeStream stream(device);
  int value = 0;
  stream.launch([&] { value = 1; });
  const Event event = stream.mark();
  EXPECT_EQ(value, 0);
  EXPECT_FALSE(event.complete());
  event.wait();
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(event.complete());
}

TEST(DeviceStream, CarriesOutWhatWasPostedBeforeWhateverFollows) {
  FakeDevice device(1);
  Counting operation;
  FakeStream stream(device);
  const Event posted = stream.post(operation);
  EXPECT_EQ(operation.carried_out, 0);
  EXPECT_FALSE(posted.complete());
  stream.launch([&] { EXPECT_EQ(operation.carried_out, 1); });
  EXPECT_EQ(operation.carried_out, 1);
  posted.wait();
  EXPECT_TRUE(posted.complete());
}

TEST(DeviceStream, CancelsWhatWasOnlyPostedWhenItEnds) {
  FakeDevice device(1);
  Counting operation;
  {
    FakeStream stream(device);
    stream.post(operation);
  }
  EXPECT_EQ(operation.carried_out, 0);
  EXPECT_EQ(operation.cancelled, 1);
}

TEST(DeviceStream, ThrowsAFailureFromWhateverFollowsAndFromItsEventEachTime) {
  FakeDevice device(1);
  Failing failing;
  Counting behind;
  FakeStream stream(device);
  const Event failed = stream.post(failing);
  const Event cancelled = stream.post(behind);
  EXPECT_THROW(stream.flush(), std::runtime_error);
  EXPECT_EQ(behind.cancelled, 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(failed.wait(), std::runtime_error);
    EXPECT_THROW(cancelled.wait(), std::runtime_error);
    EXPECT_FALSE(failed.complete());
  }
  int value = 0;
  stream.launch([&] { value = 1; });
  stream.synchronize();
  EXPECT_EQ(value, 1);
}

TEST(DeviceStream, WaitsOnTheHostForTheEventOfACpuStream) {
  FakeDevice device(1);
  Counting operation;
  CpuStream cpu;
  FakeStream stream(device);
  stream.wait_for(cpu.post(operation));
  EXPECT_EQ(operation.carried_out, 1);
}

class GivingUp final : public StreamWatch {
 public:
  int checks = 0;
  void check(double waited_seconds) override {
    ++checks;
    if (waited_seconds > 0.02) throw std::runtime_error("in vain");
  }
};

TEST(DeviceStream, ChecksWhileItWaitsWhetherItsWorkCanStillEnd) {
  FakeDevice device(1);
  const auto watch = std::make_shared<GivingUp>();
  FakeStream stream(device);
  const Event event = stream.mark();
  stream.hang(std::make_shared<std::atomic<bool>>(false));
  stream.watch(watch);
  stream.watch(watch);
  EXPECT_THROW(event.wait(), std::runtime_error);
  EXPECT_GT(watch->checks, 1);
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
}

TEST(DeviceStream, WaitsOnUnderAWatchUntilItsWorkIsDone) {
  FakeDevice device(1);
  const auto watch = std::make_shared<GivingUp>();
  FakeStream stream(device);
  int value = 0;
  stream.launch([&] { value = 1; });
  stream.hang(std::make_shared<std::atomic<bool>>(true));
  stream.watch(watch);
  stream.mark().wait();
  EXPECT_EQ(value, 1);
}

TEST(EventPool, LendsEachEventToOneHolderAtATime) {
  const auto pool = std::make_shared<EventPool>();
  EXPECT_EQ(pool->take(), nullptr);
  auto event = std::make_unique<testing::FakeEvent>();
  const DeviceEvent* const address = event.get();
  EventLease lease(event.release(), {pool});
  EXPECT_EQ(pool->take(), nullptr);
  EventLease moved = std::move(lease);
  EXPECT_EQ(moved.get(), address);
  moved = EventLease();
  EXPECT_EQ(pool->take().get(), address);
}

// Two streams use the same bytes of an arena in turn.
TEST(StreamFork, LetsBytesBeLentAgainAtOnce) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Arena arena(Device::cpu(), 4096);
    FakeDevice device(seed);
    FakeStream main(device);
    FakeStream side(device);
    std::vector<int> seen;
    for (int round = 0; round < 6; ++round) {
      Buffer buffer = arena.allocate_for<int>(1000, "a value");
      int* const value = buffer.as<int>().data();
      main.launch([=] { *value = round; });
      {
        const StreamFork fork(main, side);
        side.launch([=, &seen] { seen.push_back(*value); });
      }
    }
    main.synchronize();
    ASSERT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 4, 5})) << "seed " << seed;
  }
}

}  // namespace
}  // namespace evenkeel
