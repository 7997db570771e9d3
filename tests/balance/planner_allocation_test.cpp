// Planning allocates nothing after the first call of a shape, whatever the loads. The test counts every call
// of operator new in this program.
#include <gmock/gmock.h>

#include <cstdlib>
#include <new>

#include "evenkeel/balance/planner.h"
#include "tests/balance/cases.h"

namespace {
std::size_t allocations = 0;
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace evenkeel {
namespace {

class PlannerAllocation : public testing::TestWithParam<PlannerOptions::Kind> {};

// Counts of the same shape as `like` with random loads: hot, even, sparse or concentrated in few experts.
Counts other_counts(std::mt19937_64& random, const Case& like, bool sources) {
  Case c = like;
  const std::int64_t kind = draw(random, 0, 3);
  for (std::int64_t& load : c.loads)
    load = kind == 0   ? draw(random, 0, 9) == 0 ? draw(random, 0, 100000) : 1
           : kind == 1 ? draw(random, 990, 1010)
           : kind == 2 ? draw(random, 0, 3) / 3
                       : draw(random, 0, 4) / 4 * 5000;
  return sources ? with_random_sources(random, c) : c.counts();
}

TEST_P(PlannerAllocation, NothingIsAllocatedAfterTheFirstCallOfAShape) {
  std::mt19937_64 random(1);
  for (int shape = 0; shape < 60; ++shape) {
    const Case c = random_case(random, {.max_ranks = 16, .max_experts = 100, .copies = shape % 3 == 0});
    const LayerPlacement placement = c.placement();
    const std::int64_t segments[] = {1, 5, 64, 4096};
    PlannerOptions options{
        .kind = GetParam(), .min_segment = segments[shape % 4], .imbalance_threshold_thousandths = 0};
    if (GetParam() == PlannerOptions::Kind::level && shape % 2 == 0)
      options.links = {.topology = Topology::uniform(c.num_ranks, 1, {450}, {50}),
                       .machine = {.ranks_per_nic = 2},
                       .expert = {1e6, 1e3, 2e6},
                       .row_bytes = 2e3};
    const auto planner = make_planner(options);
    StepPlan plan;
    planner->plan(other_counts(random, c, shape % 2 == 0), placement, plan, c.base_load);
    for (int step = 0; step < 40; ++step) {
      const Counts counts = other_counts(random, c, shape % 2 == 0);
      const std::size_t before = allocations;
      planner->plan(counts, placement, plan, c.base_load);
      ASSERT_EQ(allocations, before) << "shape " << shape << " step " << step << " of " << c.text();
    }
  }
}

TEST_P(PlannerAllocation, NothingIsAllocatedAfterTheFirstCallOnManyRanks) {
  std::mt19937_64 random(2);
  for (const std::int64_t min_segment : {1, 64, 4096}) {
    Case c;
    c.num_ranks = 700;
    for (int e = 0; e < 900; ++e) c.homes.push_back({e * 7 % 700});
    c.loads.resize(c.homes.size());
    const LayerPlacement placement = c.placement();
    const auto planner =
        make_planner({.kind = GetParam(), .min_segment = min_segment, .imbalance_threshold_thousandths = 0});
    StepPlan plan;
    planner->plan(other_counts(random, c, false), placement, plan);
    for (int step = 0; step < 6; ++step) {
      const Counts counts = other_counts(random, c, false);
      const std::size_t before = allocations;
      planner->plan(counts, placement, plan);
      ASSERT_EQ(allocations, before) << "step " << step;
    }
  }
}

TEST(PlannerAllocationCount, SeesTheFirstCall) {
  std::mt19937_64 random(1);
  const Case c = random_case(random, {});
  const Counts counts = c.counts();
  const LayerPlacement placement = c.placement();
  StepPlan plan;
  const auto planner =
      make_planner({.kind = PlannerOptions::Kind::level, .imbalance_threshold_thousandths = 0});
  const std::size_t before = allocations;
  planner->plan(counts, placement, plan);
  EXPECT_GT(allocations, before);
}

INSTANTIATE_TEST_SUITE_P(Planners, PlannerAllocation,
                         testing::Values(PlannerOptions::Kind::ep, PlannerOptions::Kind::least_loaded,
                                         PlannerOptions::Kind::level));

}  // namespace
}  // namespace evenkeel
