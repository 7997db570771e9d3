// Slots that keep their experts between steps. Every plan can be carried out with the experts in the slots,
// is as level as allowed, and sends less than refilling the slots each step.
#include "evenkeel/balance/held_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/base/error.h"
#include "tests/balance/cases.h"

namespace evenkeel {
namespace {

using Kind = PlannerOptions::Kind;

PlannerOptions options(std::int64_t slots, std::int64_t min_segment = 1) {
  return {.kind = Kind::level,
          .min_segment = min_segment,
          .imbalance_threshold_thousandths = 0,
          .borrow_slots = slots};
}

// Loads that drift: experts' popularity is multiplied by a little noise each step.
class Drift {
 public:
  Drift(std::uint64_t seed, int experts, double step) : random_(seed), step_(step) {
    for (int e = 0; e < experts; ++e)
      popularity_.push_back(std::exp(std::normal_distribution(0.0, 1.0)(random_)));
  }
  std::vector<std::int64_t> next(std::int64_t assignments) {
    for (double& each : popularity_) each *= std::exp(std::normal_distribution(0.0, step_)(random_));
    std::vector<std::int64_t> loads(popularity_.size(), 0);
    std::discrete_distribution<std::size_t> draw(popularity_.begin(), popularity_.end());
    for (std::int64_t i = 0; i < assignments; ++i) ++loads[draw(random_)];
    return loads;
  }

 private:
  std::mt19937_64 random_;
  double step_;
  std::vector<double> popularity_;
};

std::vector<std::vector<ExpertId>> experts_in(const HeldSlots& held, int ranks) {
  std::vector<std::vector<ExpertId>> slots;
  for (RankId rank : indices<RankId>(ranks))
    slots.emplace_back(held.slots(rank).begin(), held.slots(rank).end());
  return slots;
}

// Each sent expert is in its rank's slots now and was not before; all other slots are unchanged.
void expect_slots(const HeldSlots& held, const std::vector<std::vector<ExpertId>>& before,
                  const LayerPlacement& homes) {
  auto held_experts = experts_in(held, homes.num_ranks());
  for (const Transfer& transfer : held.sent()) {
    EXPECT_EQ(homes.owner(transfer.expert), transfer.from);
    EXPECT_FALSE(homes.is_home(transfer.expert, transfer.to));
    EXPECT_EQ(std::ranges::count(before[transfer.to.offset()], transfer.expert), 0);
    auto& there = held_experts[transfer.to.offset()];
    const auto slot = std::ranges::find(there, transfer.expert);
    ASSERT_NE(slot, there.end());
    *slot = before[transfer.to.offset()][static_cast<std::size_t>(slot - there.begin())];
    EXPECT_EQ(std::ranges::count(there, transfer.expert), 0) << "the expert is in two slots of a rank";
  }
  EXPECT_EQ(held_experts, before);
}

// Every segment's rank is a home of the expert or has it in a slot; all assignments are covered.
void expect_possible(const Counts& counts, const StepPlan& plan, const HeldSlots& held,
                     const LayerPlacement& homes) {
  for (ExpertId expert : indices<ExpertId>(counts.num_experts())) {
    std::int64_t end = 0;
    for (const Segment& segment : plan.segments(expert)) {
      EXPECT_EQ(segment.begin, end);
      end = segment.end;
      const auto held_experts = held.slots(segment.rank);
      EXPECT_TRUE(homes.is_home(expert, segment.rank) ||
                  std::ranges::find(held_experts, expert) != held_experts.end());
    }
    EXPECT_EQ(end, counts.load(expert));
  }
}

std::int64_t worst_of(const StepPlan& plan) {
  return std::ranges::max(plan.rank_loads());
}

TEST(HeldSlots, EveryPlanCanBeCarriedOutWithWhatLiesInThem) {
  StepPlan plan, again, ep;
  const auto plain = make_planner({.kind = Kind::ep});
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Case c = random_case(random, {.max_ranks = 8, .max_experts = 24});
    const LayerPlacement homes = c.placement();
    const auto experts = static_cast<std::int64_t>(c.loads.size());
    const PlannerOptions o = options(std::min<std::int64_t>(draw(random, 1, 5), experts), draw(random, 0, 9));
    HeldSlots held(homes, o), other(homes, o);
    for (int step = 0; step < 8; ++step) {
      if (step == 5) held.clear(), other.clear();
      const Counts counts = c.counts();
      const auto before = experts_in(held, c.num_ranks);
      held.plan(counts, plan);
      other.plan(counts, again);
      EXPECT_EQ(plan, again);
      expect_slots(held, before, homes);
      expect_possible(counts, plan, held, homes);
      plain->plan(counts, homes, ep);
      EXPECT_LE(worst_of(plan), worst_of(ep));
      if (::testing::Test::HasFailure()) return;
      std::ranges::rotate(c.loads, c.loads.begin() + draw(random, 0, experts - 1));
      for (std::int64_t& load : c.loads) load -= draw(random, 0, load) / 4;
    }
  }
}

TEST(HeldSlots, SendAFractionOfWhatFillingThemAnewDoesAsLevel) {
  constexpr int ranks = 8, experts = 64, steps = 40;
  const LayerPlacement homes = LayerPlacement::contiguous(experts, ranks);
  StepPlan plan;
  for (const std::int64_t slots : {2, 4}) {
    std::size_t kept = 0, anew = 0;
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      Drift drift(seed, experts, 0.02);
      HeldSlots held(homes, options(slots));
      const auto level = make_planner(options(slots));
      for (int step = 0; step < steps; ++step) {
        const Counts counts = Counts::of_loads(drift.next(16384), ranks);
        level->plan(counts, homes, plan);
        anew += plan.transfers().size();
        const std::int64_t best = worst_of(plan);
        held.plan(counts, plan);
        kept += held.sent().size();
        EXPECT_LE(worst_of(plan) * 1000, best * 1010) << "seed " << seed << ", step " << step;
      }
    }
    EXPECT_LT(10 * kept, anew) << slots << " slots";
  }
}

TEST(HeldSlots, NothingIsSentWhileNothingChanges) {
  const LayerPlacement homes = LayerPlacement::contiguous(4, 2);
  HeldSlots held(homes, options(1));
  const Counts counts = Counts::of_loads(std::vector<std::int64_t>{100, 0, 0, 0}, 2);
  StepPlan plan;
  held.plan(counts, plan);
  ASSERT_EQ(held.sent().size(), 1U);
  EXPECT_EQ(held.slots(RankId(1)).front(), ExpertId(0));
  held.plan(counts, plan);
  EXPECT_TRUE(held.sent().empty());
  EXPECT_EQ(worst_of(plan), 50);
  held.clear();
  EXPECT_EQ(held.slots(RankId(1)).front(), ExpertId(-1));
  held.plan(counts, plan);
  EXPECT_EQ(held.sent().size(), 1U);
}

std::string said_of(const LayerPlacement& homes, const PlannerOptions& o, std::int64_t above = 1010) {
  try {
    HeldSlots held(homes, o, above);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing";
}

TEST(HeldSlots, RefuseWhatCannotStay) {
  const LayerPlacement homes = LayerPlacement::contiguous(4, 2);
  EXPECT_EQ(said_of(homes, {.kind = Kind::ep}),
            "planner: ep; allowed: level, if borrowed experts stay in slots between steps");
  EXPECT_EQ(said_of(homes, options(0)),
            "borrow_slots: 0; allowed: 1..4, if borrowed experts stay in slots between steps");
  EXPECT_EQ(
      said_of(homes, options(kUnlimitedSlots)),
      "borrow_slots: 9223372036854775807; allowed: 1..4, if borrowed experts stay in slots between steps");
  EXPECT_EQ(said_of(homes, options(1), 999), "renew_above: 999 thousandths; allowed: 1000 or more");
  EXPECT_EQ(said_of(LayerPlacement({{0, 1}, {1}}, 2), options(1)),
            "placement: has copies of experts; allowed: one home for each expert, if borrowed experts stay "
            "in slots between steps");
}

}  // namespace
}  // namespace evenkeel
