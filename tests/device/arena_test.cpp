// The arena lends buffers by best fit and without overlap, merges returned ones and counts bytes in use.
#include "evenkeel/device/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "evenkeel/base/error.h"

namespace evenkeel {
namespace {

constexpr std::int64_t kLine = Arena::kAlignment;

TEST(Arena, LendsAlignedBytesThatCanBeWritten) {
  Arena arena(Device::cpu(), 1 << 20);
  for (std::int64_t size : {1, 63, 64, 65, 1000}) {
    const Buffer buffer = arena.allocate(size, "some");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kLine, 0u);
    ASSERT_EQ(buffer.bytes().size(), static_cast<std::size_t>(size));
    std::memset(buffer.data(), 1, buffer.bytes().size());
  }
}

TEST(Arena, LendsAlignedBytesWhereTheBudgetEndsAmidALine) {
  for (std::int64_t beyond : {0, 1, 32, 63}) {
    Arena arena(Device::cpu(), 10 * kLine + beyond);
    EXPECT_EQ(arena.budget_bytes(), 10 * kLine + beyond);
    EXPECT_EQ(arena.largest_gap_bytes(), 10 * kLine);
    for (Lifetime lifetime : {Lifetime::step, Lifetime::held}) {
      const Buffer first = arena.allocate(3 * kLine, "first", lifetime);
      const Buffer rest = arena.allocate(7 * kLine, "rest", lifetime);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data()) % kLine, 0u);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(rest.data()) % kLine, 0u);
      EXPECT_THROW(arena.allocate(1, "more"), BudgetTooSmall);
    }
  }
  Arena none(Device::cpu(), kLine - 1);
  EXPECT_THROW(none.allocate(1, "some"), BudgetTooSmall);
  EXPECT_THROW(none.allocate(-1, "less than nothing"), InvalidArgument);
}

TEST(Arena, CountsWholeLinesAndKeepsTheLargestCount) {
  Arena arena(Device::cpu(), 100 * kLine);
  EXPECT_EQ(arena.allocate(0, "nothing").bytes().size(), 0u);
  EXPECT_EQ(arena.peak_bytes(), 0);
  Buffer a = arena.allocate(1, "a");
  {
    const Buffer b = arena.allocate(kLine + 1, "b");
    EXPECT_EQ(arena.in_use_bytes(), 3 * kLine);
  }
  EXPECT_EQ(arena.in_use_bytes(), kLine);
  EXPECT_EQ(arena.peak_bytes(), 3 * kLine);
  arena.reset_peak();
  EXPECT_EQ(arena.peak_bytes(), kLine);
  a.release();
  EXPECT_EQ(arena.in_use_bytes(), 0);
  EXPECT_EQ(arena.budget_bytes(), 100 * kLine);
}

TEST(Arena, GivesTheSmallestGapThatIsLargeEnough) {
  Arena arena(Device::cpu(), 20 * kLine);
  Buffer large = arena.allocate(6 * kLine, "large");
  const Buffer wall = arena.allocate(kLine, "wall");
  Buffer small = arena.allocate(3 * kLine, "small");
  const Buffer rest = arena.allocate(10 * kLine, "rest");
  const std::byte* const place = small.data();
  large.release();
  small.release();
  EXPECT_EQ(arena.allocate(3 * kLine, "fits").data(), place);
}

TEST(Arena, JoinsNeighboursInWhateverOrderTheyComeBack) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    Arena arena(Device::cpu(), 4 * kLine);
    Buffer quarters[4];
    for (Buffer& quarter : quarters) quarter = arena.allocate(kLine, "quarter");
    for (int i : order) quarters[i].release();
    EXPECT_EQ(arena.allocate(4 * kLine, "all").bytes().size(), static_cast<std::size_t>(4 * kLine));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Arena, RefusesToExceedItsBudgetAndNamesWhatWasAskedFor) {
  Arena arena(Device::cpu(), 10 * kLine);
  const Buffer held = arena.allocate(6 * kLine, "held");
  try {
    const Buffer more = arena.allocate(5 * kLine, "rows to send");
    FAIL() << "gave more than the budget";
  } catch (const BudgetTooSmall& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rows to send"));
    std::vector<std::int64_t> numbers;
    for (const Error::Field& field : error.data())
      if (const auto* number = std::get_if<std::int64_t>(&field.value)) numbers.push_back(*number);
    EXPECT_THAT(numbers, ::testing::ElementsAre(10 * kLine, 11 * kLine));
  }
  EXPECT_EQ(arena.in_use_bytes(), 6 * kLine);
  EXPECT_EQ(arena.allocate(4 * kLine, "the rest").bytes().size(), static_cast<std::size_t>(4 * kLine));
}

TEST(Arena, MayHaveAnEmptyBudgetButNotANegativeOne) {
  Arena arena(Device::cpu(), 0);
  EXPECT_THROW(arena.allocate(1, "a byte"), BudgetTooSmall);
  EXPECT_THROW(Arena(Device::cpu(), -2), InvalidArgument);
}

TEST(Arena, NeedsNoMoreForBuffersThatGoInTheReverseOrderOfTheirComingThanTheirSum) {
  Arena arena(Device::cpu(), 8 * kLine);
  Buffer held = arena.allocate(kLine, "held", Lifetime::held);
  for (int round = 0; round < 3; ++round) {
    const Buffer first = arena.allocate(2 * kLine, "first");
    Buffer second = arena.allocate(3 * kLine, "second");
    EXPECT_LT(held.data(), second.data());
    EXPECT_LT(second.data(), first.data());
    second.release();
    EXPECT_EQ(arena.largest_gap_bytes(), 5 * kLine);
    const Buffer instead = arena.allocate(4 * kLine, "instead");
    const Buffer more = arena.allocate(kLine, "more", Lifetime::held);
    EXPECT_EQ(arena.largest_gap_bytes(), 0);
  }
  EXPECT_EQ(arena.largest_gap_bytes(), 7 * kLine);
}

TEST(Arena, SaysWhatItsLargestGapWillBeWithoutABufferWhereverItLies) {
  Arena arena(Device::cpu(), 10 * kLine);
  const Buffer low = arena.allocate(2 * kLine, "low", Lifetime::held);
  Buffer next = arena.allocate(3 * kLine - 1, "next to it", Lifetime::held);
  const Buffer high = arena.allocate(kLine, "high");
  EXPECT_EQ(arena.largest_gap_bytes_without(Buffer()), 4 * kLine);
  EXPECT_EQ(arena.largest_gap_bytes_without(low), 4 * kLine);
  EXPECT_EQ(arena.largest_gap_bytes_without(next), 7 * kLine);
  EXPECT_EQ(arena.largest_gap_bytes_without(high), 5 * kLine);
  next.release();
  EXPECT_EQ(arena.largest_gap_bytes_without(low), 9 * kLine);
  EXPECT_EQ(arena.largest_gap_bytes_without(high), 8 * kLine);
}

TEST(Arena, RefusesClaimsThatTogetherExceedItsBudget) {
  Arena arena(Device::cpu(), 100 * kLine);
  arena.claim(40 * kLine, 10 * kLine, 2);
  EXPECT_EQ(arena.spare_state_bytes(), 20 * kLine);
  arena.claim(60 * kLine, 5 * kLine, 4);
  EXPECT_EQ(arena.claimed_step_bytes(), 60 * kLine);
  EXPECT_EQ(arena.spare_state_bytes(), 0);
  try {
    arena.claim(60 * kLine, 1, 1);
    FAIL() << "was accepted";
  } catch (const BudgetTooSmall& error) {
    EXPECT_EQ(std::get<std::int64_t>(error.data()[1].value), 100 * kLine + 1);
  }
}

// Compared with a list of live buffers: none overlap, none are overwritten, and a request is refused only if
// no gap in the list is large enough.
TEST(Arena, NeverLendsBytesTwiceAndRefusesOnlyWhatDoesNotFit) {
  constexpr std::int64_t kLines = 300;
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Arena arena(Device::cpu(), kLines * kLine);
    const Buffer probe = arena.allocate(1, "origin", Lifetime::held);
    const std::byte* const origin = probe.data();
    std::map<std::int64_t, std::pair<std::int64_t, Buffer>> live;  // begin -> (lines, buffer)
    int refused = 0;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 100 < 45 && !live.empty()) {
        auto at = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
        for (std::byte byte : at->second.second.bytes())
          ASSERT_EQ(byte, static_cast<std::byte>(at->first % 251)) << "seed " << seed;
        live.erase(at);
        continue;
      }
      const auto bytes = static_cast<std::int64_t>(random() % (20 * kLine) + 1);
      const std::int64_t lines = (bytes + kLine - 1) / kLine;
      std::int64_t largest = 0, end = 1, in_use = 1;
      for (const auto& [begin, each] : live) {
        largest = std::max(largest, begin - end);
        end = begin + each.first;
        in_use += each.first;
      }
      largest = std::max(largest, kLines - end);
      ASSERT_EQ(arena.in_use_bytes(), in_use * kLine);
      try {
        Buffer buffer = arena.allocate(bytes, "some", random() % 2 == 0 ? Lifetime::held : Lifetime::step);
        const std::int64_t begin = (buffer.data() - origin) / kLine;
        const auto next = live.lower_bound(begin);
        ASSERT_TRUE(next == live.end() || begin + lines <= next->first) << "seed " << seed;
        ASSERT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second.first <= begin);
        std::memset(buffer.data(), static_cast<int>(begin % 251), buffer.bytes().size());
        live.emplace(begin, std::pair(lines, std::move(buffer)));
      } catch (const BudgetTooSmall&) {
        ++refused;
        ASSERT_LT(largest, lines) << "seed " << seed;
      }
    }
    EXPECT_GT(refused, 0);
  }
}

}  // namespace
}  // namespace evenkeel
