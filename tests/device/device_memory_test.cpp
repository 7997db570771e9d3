// An arena over addresses that the host must not access.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/device/pages.h"

namespace evenkeel {
namespace {

// Addresses without memory behind them: any access ends the program with a fault.
class FarMemory final : public MemorySource {
 public:
  static constexpr std::int64_t kPage = 1 << 20;
  static inline std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 46);

  explicit FarMemory(std::int64_t total_bytes, std::int64_t pages_to_have = 1 << 20)
      : total_bytes_(total_bytes), left_(pages_to_have) {}

  std::int64_t available_bytes() const override { return total_bytes_; }
  std::unique_ptr<MemoryRange> reserve(std::int64_t bytes, Commit commit) const override {
    if (bytes > total_bytes_) throw Unsupported("more bytes than there are");
    reserved_bytes = bytes;
    return std::make_unique<Range>(*this, bytes, commit);
  }

  mutable std::int64_t reserved_bytes = -1;
  mutable std::int64_t ranges = 0;
  mutable std::int64_t pages_there = 0;
  mutable std::map<std::int64_t, bool> page_is_there;

 private:
  class Range final : public MemoryRange {
   public:
    Range(const FarMemory& memory, std::int64_t bytes, Commit commit)
        : memory_(memory), commit_(commit), pages_(bytes, kPage) {
      ++memory_.ranges;
    }
    ~Range() override { --memory_.ranges; }
    std::byte* begin() const override { return kBase; }
    void commit(std::int64_t offset, std::int64_t bytes) override {
      EXPECT_EQ(commit_, Commit::later);
      pages_.commit(
          offset, bytes, [&](std::int64_t page) { add(page); }, [&](std::int64_t page) { drop(page); });
    }

   private:
    void add(std::int64_t page) {
      EXPECT_FALSE(memory_.page_is_there[page]);
      if (memory_.pages_there == memory_.left_) throw Unsupported("the device has no more");
      memory_.page_is_there[page] = true;
      ++memory_.pages_there;
    }
    void drop(std::int64_t page) {
      EXPECT_TRUE(memory_.page_is_there[page]);
      memory_.page_is_there[page] = false;
      --memory_.pages_there;
    }

    const FarMemory& memory_;
    Commit commit_;
    Pages pages_;
  };

  std::int64_t total_bytes_;
  std::int64_t left_;
};

constexpr std::int64_t kMiB = 1 << 20;

TEST(ArenaOverADevice, TakesItsWholeBudgetAtOnceAndGivesItBack) {
  const FarMemory memory(100 * kMiB);
  {
    const Arena arena(Device(memory), 64 * kMiB);
    EXPECT_EQ(memory.reserved_bytes, 64 * kMiB);
    EXPECT_EQ(memory.ranges, 1);
  }
  EXPECT_EQ(memory.ranges, 0);
}

TEST(ArenaOverADevice, RefusesABudgetThatTheDeviceDoesNotHave) {
  const FarMemory memory(100 * kMiB);
  EXPECT_THROW(Arena(Device(memory), 101 * kMiB), Unsupported);
}

TEST(ArenaOverADevice, CountsAsOneOverTheMachinesMemoryWhateverIsTakenAndGiven) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const FarMemory memory(100 * kMiB);
    Arena far(Device(memory), 3 * kMiB);
    Arena near(Device::cpu(), 3 * kMiB);
    std::byte* near_base = nullptr;
    std::vector<std::pair<Buffer, Buffer>> lent;
    for (int step = 0; step < 300; ++step) {
      if (!lent.empty() && random() % 3 == 0) {
        lent.erase(lent.begin() + static_cast<std::ptrdiff_t>(random() % lent.size()));
      } else {
        const auto bytes = static_cast<std::int64_t>(random() % 200000 + 1);
        const Lifetime lifetime = random() % 2 == 0 ? Lifetime::step : Lifetime::held;
        const bool fits = bytes <= near.largest_gap_bytes() / 64 * 64;
        if (!fits) {
          EXPECT_THROW(far.allocate(bytes, "too much", lifetime), BudgetTooSmall);
          continue;
        }
        lent.emplace_back(near.allocate(bytes, "rows", lifetime), far.allocate(bytes, "rows", lifetime));
        if (near_base == nullptr)
          near_base = lent.front().first.data() - (lent.front().second.data() - FarMemory::kBase);
        EXPECT_EQ(lent.back().first.data() - near_base, lent.back().second.data() - FarMemory::kBase);
      }
      ASSERT_EQ(far.in_use_bytes(), near.in_use_bytes()) << "seed " << seed;
      ASSERT_EQ(far.peak_bytes(), near.peak_bytes());
      ASSERT_EQ(far.largest_gap_bytes(), near.largest_gap_bytes());
      ASSERT_LE(far.peak_bytes(), far.budget_bytes());
    }
  }
}

TEST(ArenaOverADevice, HasBytesBehindEverythingItLendsWithoutABudgetAndKeepsThem) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const FarMemory memory(64 * kMiB);
    Arena arena((Device(memory)));
    EXPECT_FALSE(arena.is_bounded());
    std::vector<Buffer> lent;
    for (int step = 0; step < 200; ++step) {
      if (!lent.empty() && random() % 3 == 0) {
        lent.pop_back();
      } else if (arena.largest_gap_bytes() > 3 * kMiB) {
        lent.push_back(arena.allocate(static_cast<std::int64_t>(random() % (3 * kMiB)) + 1, "rows",
                                      random() % 2 == 0 ? Lifetime::step : Lifetime::held));
      }
      for (const Buffer& buffer : lent) {
        const std::int64_t begin = buffer.data() - FarMemory::kBase;
        const std::int64_t last = begin + static_cast<std::int64_t>(buffer.bytes().size()) - 1;
        for (std::int64_t page = begin / FarMemory::kPage; page <= last / FarMemory::kPage; ++page)
          ASSERT_TRUE(memory.page_is_there[page]) << "seed " << seed;
      }
    }
    const std::int64_t pages = memory.pages_there;
    lent.clear();
    EXPECT_EQ(memory.pages_there, pages);
    EXPECT_LE(pages * FarMemory::kPage, 64 * kMiB);
  }
}

TEST(ArenaOverADevice, IsAsBeforeWhereTheDeviceHasNoMore) {
  const FarMemory memory(64 * kMiB, /*pages_to_have=*/5);
  Arena arena((Device(memory)));
  const Buffer kept = arena.allocate(3 * kMiB, "kept", Lifetime::held);
  EXPECT_THROW(arena.allocate(8 * kMiB, "too much", Lifetime::held), Unsupported);
  EXPECT_EQ(memory.pages_there, 3);
  EXPECT_EQ(arena.in_use_bytes(), 3 * kMiB);
  const Buffer fits = arena.allocate(2 * kMiB, "fits", Lifetime::held);
  EXPECT_EQ(memory.pages_there, 5);
}

TEST(Pages, AreMultiplesOfWhatTheDeviceAsksForAndCoverTheRange) {
  for (std::int64_t granularity : {std::int64_t{4096}, 2 * kMiB, 48 * kMiB, 512 * kMiB}) {
    const std::int64_t page = Pages::usual_bytes(granularity);
    EXPECT_EQ(page % granularity, 0);
    EXPECT_GE(page, 32 * kMiB);
    for (std::int64_t bytes : {std::int64_t{1}, page - 1, page, page + 1, 10 * page}) {
      const Pages pages(bytes, page);
      EXPECT_GE(pages.bytes(), bytes);
      EXPECT_LT(pages.bytes() - bytes, page);
    }
  }
}

}  // namespace
}  // namespace evenkeel
