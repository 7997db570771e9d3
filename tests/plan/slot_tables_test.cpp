// Rows routed by the slot tables reach a slot of their expert on the rank given by the deal.
#include "evenkeel/plan/slot_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "tests/plan/deal_oracle.h"

namespace evenkeel::testing {
namespace {

using Numbers = std::vector<std::int64_t>;

// Random homes, dealt evenly over the ranks.
LayerPlacement shuffled(std::mt19937& random, int experts, int ranks) {
  std::vector<int> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  std::vector<std::vector<int>> homes(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    homes[static_cast<std::size_t>(order[i])] = {static_cast<int>(i) % ranks};
  return LayerPlacement(homes, ranks);
}

// The expert in a rank's `place`: first the native experts, then the borrow slots.
std::int64_t expert_at(const LayerPlacement& placement, const SlotTables& tables, RankId rank,
                       std::int64_t place) {
  const auto natives = placement.natives(rank);
  const auto at = static_cast<std::size_t>(place);
  return at < natives.size() ? natives[at].value() : tables.borrowed.at(at - natives.size());
}

void expect_right(const Choices& choices, const StepPlan& plan, const LayerPlacement& placement,
                  std::int64_t slots) {
  const int ranks = choices.num_ranks();
  const Counts counts = choices.counts();
  std::vector<SlotTables> tables(static_cast<std::size_t>(ranks));
  for (RankId me : indices<RankId>(ranks)) tables[me.offset()].make(counts, plan, placement, me, slots);
  const std::int64_t here = choices.num_experts / ranks + slots;
  const auto to = destinations(choices, plan);
  std::vector<Numbers> at_home(tables.size(), Numbers(tables.size(), 0)), in_slots = at_home;
  for (std::size_t source = 0; source < tables.size(); ++source) {
    std::vector<std::size_t> sorted;
    for (std::size_t a = 0; a < choices.ids[source].size(); ++a)
      if (choices.ids[source][a] >= 0) sorted.push_back(a);
    std::ranges::stable_sort(sorted, {}, [&](std::size_t a) { return choices.ids[source][a]; });
    auto next = sorted.begin();
    for (std::size_t i = 0; i < tables[source].places().size(); ++i)
      for (std::int64_t n = 0; n < tables[source].counts()[i]; ++n) {
        ASSERT_NE(next, sorted.end());
        const std::int64_t place = tables[source].places()[i];
        const auto rank = static_cast<std::size_t>(place / here);
        ASSERT_EQ(static_cast<int>(rank), to[source][*next]);
        const int expert = choices.ids[source][*next++];
        ASSERT_EQ(expert_at(placement, tables[rank], RankId(rank), place % here), expert);
        ++(placement.is_home(ExpertId(expert), RankId(rank)) ? at_home : in_slots)[rank][source];
      }
    ASSERT_EQ(next, sorted.end());
  }
  for (std::size_t rank = 0; rank < tables.size(); ++rank) {
    EXPECT_EQ(tables[rank].at_home(), at_home[rank]);
    EXPECT_EQ(tables[rank].in_slots(), in_slots[rank]);
    EXPECT_LE(std::ssize(tables[rank].borrowed), slots);
  }
}

TEST(SlotTables, PutEachRowAtAPlaceOfItsExpertWhereTheDealSays) {
  StepPlan plan;
  int moved = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    const int ranks = static_cast<int>(random() % 7) + 1;
    const Choices choices = random_choices(random, ranks);
    if (choices.num_experts % ranks != 0) continue;
    const LayerPlacement placement = shuffled(random, choices.num_experts, ranks);
    const std::int64_t slots = static_cast<std::int64_t>(random() % 4) + 1;
    make_planner({.kind = PlannerOptions::Kind::level,
                  .min_segment = static_cast<std::int64_t>(random() % 8),
                  .imbalance_threshold_thousandths = 0,
                  .borrow_slots = slots})
        ->plan(choices.counts(), placement, plan);
    moved += plan.spilled();
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_right(choices, plan, placement, slots);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(moved, 100);
}

}  // namespace
}  // namespace evenkeel::testing
