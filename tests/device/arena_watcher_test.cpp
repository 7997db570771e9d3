// An arena's watcher is called for every buffer, when it is lent and when it is returned.
#include "evenkeel/device/arena_watcher.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "evenkeel/base/error.h"

namespace evenkeel {
namespace {

constexpr std::int64_t kOneLine = Arena::kAlignment;

// Records the live buffers independently and checks the arena's count of bytes in use.
class RecordingWatcher final : public ArenaWatcher {
 public:
  void lent(const Loan& loan, std::int64_t in_use) noexcept override {
    sum_ += loan.bytes;
    EXPECT_EQ(in_use, sum_);
    EXPECT_TRUE(alive.emplace(loan.begin, loan).second);
    last = loan;
    ++events;
  }
  void given_back(std::int64_t begin, std::int64_t in_use) noexcept override {
    ASSERT_TRUE(alive.contains(begin));
    sum_ -= alive.at(begin).bytes;
    alive.erase(begin);
    EXPECT_EQ(in_use, sum_);
    ++events;
  }

  std::map<std::int64_t, Loan> alive;  // key: the loan's begin
  Loan last;
  int events = 0;

 private:
  std::int64_t sum_ = 0;
};

TEST(ArenaWatcher, IsToldTheNameTheRoundedBytesAndThePlace) {
  Arena arena(Device::cpu(), 10 * kOneLine);
  RecordingWatcher watcher;
  arena.watch(&watcher);
  const Buffer held = arena.allocate(kOneLine + 1, "held rows", Lifetime::held);
  EXPECT_EQ(watcher.last.name, std::string("held rows"));
  EXPECT_EQ(watcher.last.begin, 0);
  EXPECT_EQ(watcher.last.bytes, 2 * kOneLine);
  EXPECT_EQ(watcher.last.lifetime, Lifetime::held);
  const Buffer step = arena.allocate_for<float>(3, "weights of a step");
  EXPECT_EQ(watcher.last.name, std::string("weights of a step"));
  EXPECT_EQ(watcher.last.begin, 9 * kOneLine);
  EXPECT_EQ(watcher.last.bytes, kOneLine);
  EXPECT_EQ(watcher.last.lifetime, Lifetime::step);
  EXPECT_EQ(step.data() - held.data(), watcher.last.begin);
}

TEST(ArenaWatcher, HearsNothingOfEmptyBuffersAndOfWhatIsRefused) {
  Arena arena(Device::cpu(), kOneLine);
  RecordingWatcher watcher;
  arena.watch(&watcher);
  EXPECT_TRUE(arena.allocate(0, "nothing").bytes().empty());
  EXPECT_THROW(arena.allocate(2 * kOneLine, "too much"), BudgetTooSmall);
  EXPECT_EQ(watcher.events, 0);
}

TEST(ArenaWatcher, IsToldOnceOfABufferHoweverItIsMoved) {
  Arena arena(Device::cpu(), 10 * kOneLine);
  RecordingWatcher watcher;
  arena.watch(&watcher);
  Buffer a = arena.allocate(1, "a");
  Buffer b = std::move(a);
  EXPECT_EQ(watcher.events, 1);
  b = arena.allocate(1, "b");
  EXPECT_EQ(watcher.events, 3);
  EXPECT_EQ(watcher.alive.begin()->second.name, std::string("b"));
  b.release();
  b.release();
  EXPECT_EQ(watcher.events, 4);
  EXPECT_EQ(arena.in_use_bytes(), 0);
}

TEST(ArenaWatcher, IsToldUntilAnotherIsOrNobody) {
  Arena arena(Device::cpu(), 10 * kOneLine);
  RecordingWatcher first, second;
  arena.watch(&first);
  arena.allocate(1, "seen by the first");
  arena.watch(&second);
  arena.allocate(1, "seen by the second");
  arena.watch(nullptr);
  arena.allocate(1, "seen by nobody");
  EXPECT_EQ(first.events, 2);
  EXPECT_EQ(second.events, 2);
}

}  // namespace
}  // namespace evenkeel
