// An expert's owner finds, exactly once, the gradient of every other rank that computed part of the expert,
// in the block where that rank keeps it.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "evenkeel/balance/planner.h"
#include "evenkeel/exchange/cuda/internal/returning.h"
#include "tests/exchange/cuda/host_routes.h"

namespace evenkeel::testing {
namespace {

// The expert whose gradient a rank keeps in `block`; -1 if there is none.
int expert_of(const RankTables& rank, const LayerPlacement& placement, int block) {
  const int copy = block - rank.shape.most_borrowed();
  if (copy < 0) return rank.borrowed_expert[static_cast<std::size_t>(block)];
  int seen = 0;
  for (const ExpertId expert : placement.natives(RankId(rank.shape.me)))
    if (placement.owner(expert).value() != rank.shape.me && seen++ == copy) return expert.value();
  return -1;
}

std::set<int> others_who_compute(const StepPlan& plan, const LayerPlacement& placement, ExpertId expert) {
  std::set<int> ranks;
  for (const Segment& segment : plan.segments(expert)) ranks.insert(segment.rank.value());
  ranks.erase(placement.owner(expert).value());
  return ranks;
}

TEST(Returning, FindsEveryPartOnceWhereItLies) {
  int of_copies = 0, of_borrowed = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 7);
    const Choices choices = random_choices(random, ranks);
    const LayerPlacement placement = random_placement(random, choices.num_experts, ranks, seed % 4 != 0);
    StepPlan plan;
    make_planner({static_cast<PlannerOptions::Kind>(seed % 3), 1000, 2, 0})
        ->plan(choices.counts(), placement, plan);
    const HostRoutes routes(choices, placement, plan, {});
    const cuda::PlacementTables homes(placement);
    for (const ExpertId expert : indices<ExpertId>(choices.num_experts)) {
      const RankTables& owner = routes.rank(placement.owner(expert).value());
      std::vector<int> found;
      cuda::for_each_part(owner.shape, homes.view(), owner.step, expert.value(), [&](int rank, int block) {
        found.push_back(rank);
        EXPECT_EQ(expert_of(routes.rank(rank), placement, block), expert.value()) << "seed " << seed;
        (block < owner.shape.most_borrowed() ? of_borrowed : of_copies) += 1;
      });
      const std::set<int> expected = others_who_compute(plan, placement, expert);
      EXPECT_EQ(found.size(), expected.size()) << "seed " << seed;
      EXPECT_EQ(std::set<int>(found.begin(), found.end()), expected) << "seed " << seed;
    }
  }
  EXPECT_GT(of_copies, 100);
  EXPECT_GT(of_borrowed, 100);
}

}  // namespace
}  // namespace evenkeel::testing
