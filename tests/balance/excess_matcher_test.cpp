// For many ranks the matcher uses ordered sets; its moves equal those found by scanning all ranks.
#include "evenkeel/balance/internal/excess_matcher.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/balance/cases.h"

namespace evenkeel::internal {
namespace {

struct Settled {
  bool whole = false;
  std::vector<Move> moves;
  std::vector<std::int64_t> balance;
};

Settled settled(const Case& c, std::int64_t worst, std::int64_t min_segment, std::size_t many_ranks) {
  const Counts counts = c.counts();
  const LayerPlacement placement = c.placement();
  HomeSlots slots;
  slots.reset(counts, placement, min_segment);
  std::vector<std::int64_t> balance(static_cast<std::size_t>(c.num_ranks), -worst);
  for (std::size_t r = 0; r < c.base_load.size(); ++r) balance[r] += c.base_load[r];
  for (const HomeSlots::Slot& slot : slots.all()) balance[slot.rank.offset()] += slot.share;
  ExcessMatcher matching(many_ranks);
  matching.reset(slots, balance, min_segment);
  Settled result;
  result.whole = matching.settle();
  result.moves.assign(matching.moves().begin(), matching.moves().end());
  result.balance.assign(matching.balance().begin(), matching.balance().end());
  return result;
}

TEST(ExcessMatcher, OfManyRanksMakesTheMovesOfFew) {
  std::mt19937_64 random(11);
  int stuck = 0;
  int moved = 0;
  for (int round = 0; round < 6000; ++round) {
    const int most = round % 20 == 0 ? 80 : 16;
    const Case c = random_case(
        random,
        {.max_ranks = most, .max_experts = 3 * most, .copies = round % 4 == 0, .base_load = round % 3 == 0});
    const std::int64_t total =
        std::accumulate(c.loads.begin(), c.loads.end(),
                        std::accumulate(c.base_load.begin(), c.base_load.end(), std::int64_t{0}));
    if (total > std::int64_t{1} << 60) continue;  // so that sums of means below cannot overflow
    const std::int64_t mean = total / c.num_ranks + 1;
    const std::int64_t segments[] = {0, 1, 2, 7, mean / 9, mean / 2, mean, 2 * mean};
    const std::int64_t min_segment = segments[draw(random, 0, 7)];
    const std::int64_t worst = mean + draw(random, 0, 3) * (mean / 10);
    const Settled scanned = settled(c, worst, min_segment, std::numeric_limits<std::size_t>::max());
    const Settled found = settled(c, worst, min_segment, 0);
    ASSERT_EQ(found.whole, scanned.whole) << c.text();
    ASSERT_EQ(found.balance, scanned.balance) << c.text();
    ASSERT_EQ(found.moves.size(), scanned.moves.size()) << c.text();
    for (std::size_t i = 0; i < found.moves.size(); ++i) {
      ASSERT_EQ(found.moves[i].slot, scanned.moves[i].slot) << "move " << i << " of " << c.text();
      ASSERT_EQ(found.moves[i].to, scanned.moves[i].to) << "move " << i << " of " << c.text();
      ASSERT_EQ(found.moves[i].amount, scanned.moves[i].amount) << "move " << i << " of " << c.text();
    }
    stuck += scanned.whole ? 0 : 1;
    moved += scanned.moves.empty() ? 0 : 1;
  }
  EXPECT_GT(stuck, 100);
  EXPECT_GT(moved, 1500);
}

}  // namespace
}  // namespace evenkeel::internal
