// Level over unequal links, compared with all possible plans, level without links, and plain EP.
#include <gmock/gmock.h>

#include <algorithm>
#include <optional>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/error.h"
#include "evenkeel/plan/check.h"
#include "tests/balance/cases.h"
#include "tests/balance/links_oracle.h"

namespace evenkeel {
namespace {

using ::testing::IsEmpty;

using Kind = PlannerOptions::Kind;

constexpr double kByte = 1e-6;  // seconds per byte on links within a node

// An assignment takes one second. Links between nodes are as fast as links within a node, or slower.
StepLinks random_links(std::mt19937_64& random, int ranks, std::int64_t assignments, bool rows) {
  const int nodes = ranks % 2 == 0 && draw(random, 0, 3) > 0 ? 2 : ranks;
  const auto slower = static_cast<double>(std::int64_t{1} << draw(random, 0, 4));
  const double parts[] = {0, 0.005, 0.02, 0.06};  // transfer time / time of all products on one rank
  StepLinks links{
      .topology = Topology::uniform(nodes, ranks / nodes, {1e-9 / kByte, 0}, {1e-9 / kByte / slower, 0}),
      .machine = {},
      .expert = {.elements = 1,
                 .outputs = 1,
                 .bytes = parts[draw(random, 0, 3)] * static_cast<double>(assignments) / kByte},
      .row_bytes = rows ? static_cast<double>(draw(random, 0, 4)) / 32 / kByte : 0,
      .backward = rows && draw(random, 0, 1) == 1};
  links.machine.flops_per_second = 2;
  links.machine.weight_bytes_per_second = 1e15;
  links.machine.chunk_seconds = static_cast<double>(draw(random, 0, 1));
  links.machine.ranks_per_nic = draw(random, 0, 1) == 0 ? 1 : 64;
  links.machine.ramp_bytes = static_cast<double>(draw(random, 0, 1)) / kByte;
  return links;
}

PlannerOptions level(std::int64_t m, std::optional<StepLinks> links = std::nullopt) {
  return {.kind = Kind::level, .min_segment = m, .imbalance_threshold_thousandths = 0, .links = links};
}

StepPlan plan_of(const Counts& counts, const LayerPlacement& placement, const PlannerOptions& options) {
  StepPlan plan;
  make_planner(options)->plan(counts, placement, plan);
  return plan;
}

struct Tally {
  int plans = 0, best = 0, within_a_piece = 0;
};

Tally compare_with_every_plan(std::uint64_t seed, bool rows) {
  std::mt19937_64 random(seed);
  Tally tally;
  while (tally.plans < 1500) {
    Case c = tiny_case(random, false);
    if (c.num_ranks < 2) continue;
    c.loads.resize(std::min<std::size_t>(c.loads.size(), 4));
    c.homes.resize(c.loads.size());
    for (std::int64_t& load : c.loads) load = std::min<std::int64_t>(load, 8);
    const Counts counts = with_random_sources(random, c);
    const LayerPlacement placement = c.placement();
    const StepLinks links = random_links(random, c.num_ranks, counts.total(), rows);
    for (const std::int64_t m : {1, 2, 3}) {
      const double seconds = predict_step(links, counts, plan_of(counts, placement, level(m, links))).seconds;
      const double least = least_seconds(links, counts, placement, m, seconds);
      tally.best += seconds <= least * (1 + 1e-9);
      tally.within_a_piece += seconds <= least + static_cast<double>(m) + 1e-6;
      ++tally.plans;
    }
  }
  return tally;
}

TEST(LevelLinks, TakesTheLeastTimeInNineteenOfTwentySmallInstancesAndIsWithinAPieceInTheOthers) {
  const Tally tally = compare_with_every_plan(1, false);
  EXPECT_GE(tally.best * 100, tally.plans * 95);
  EXPECT_GE(tally.within_a_piece * 1000, tally.plans * 990);
}

// Level never moves work just to bring it closer to its tokens, although that can save more than balance.
TEST(LevelLinks, TakesTheLeastTimeInThreeOfFiveSmallInstancesWhereRowsTakeAsLongAsProducts) {
  const Tally tally = compare_with_every_plan(2, true);
  EXPECT_GE(tally.best * 100, tally.plans * 60);
}

TEST(LevelLinks, IsNeverSlowerThanWithoutLinksNorThanPlainEp) {
  std::mt19937_64 random(3);
  int faster_than_both = 0, spilled = 0;
  for (int i = 0; i < 1500; ++i) {
    Case c = random_case(random, {.max_ranks = 16, .max_experts = 48, .copies = i % 3 == 0});
    for (std::int64_t& load : c.loads) load = std::min<std::int64_t>(load, 1 << 20);
    if (c.num_ranks < 2) continue;
    const Counts counts = with_random_sources(random, c);
    const LayerPlacement placement = c.placement();
    const StepLinks links = random_links(random, c.num_ranks, counts.total(), i % 2 == 0);
    if (links.topology.has_uniform_links() && links.machine.ranks_per_nic == 1) continue;
    const std::int64_t m = draw(random, 0, 2) * 20;
    const StepPlan plan = plan_of(counts, placement, level(m, links));
    SCOPED_TRACE(testing::Message() << "case " << i << " m " << m << " " << c.text());
    ASSERT_THAT(check_plan(counts, placement, plan), IsEmpty());
    const auto seconds = [&](const StepPlan& each) { return predict_step(links, counts, each).seconds; };
    const double without = seconds(plan_of(counts, placement, level(m)));
    const double plain = seconds(plan_of(counts, placement, {.kind = Kind::ep}));
    const double least = std::min(without, plain);
    ASSERT_LE(seconds(plan), least * (1 + 1e-6) + 1e-9);
    faster_than_both += seconds(plan) < least * (1 - 1e-6);
    spilled += plan.spilled();
  }
  EXPECT_GT(faster_than_both, 200);
  EXPECT_GT(spilled, 400);
}

TEST(LevelLinks, ThatAreAllAlikeChangeNoPlan) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 500; ++i) {
    const Case c = random_case(random, {.copies = i % 2 == 0, .base_load = true});
    StepLinks links = random_links(random, c.num_ranks, 100, true);
    links.topology = Topology::uniform(i % 2 == 0 ? 1 : c.num_ranks, i % 2 == 0 ? c.num_ranks : 1, {2}, {2});
    if (i % 2 != 0) links.machine.ranks_per_nic = 1;
    StepPlan with, without;
    make_planner(level(3, links))->plan(c.counts(), c.placement(), with, c.base_load);
    make_planner(level(3))->plan(c.counts(), c.placement(), without, c.base_load);
    ASSERT_EQ(with, without) << c.text();
  }
}

// Two nodes of two ranks. Each node can level its own work; levelling across nodes pays only on fast links.
TEST(LevelLinks, SpillInsideTheNodeFirstAndCrossOnlyWhereThatIsFaster) {
  const Case c{{50, 30, 30, 10}, {{0}, {1}, {2}, {3}}, 4, {}};
  std::mt19937_64 random(5);
  StepLinks links = random_links(random, 4, 1, false);
  links.machine.chunk_seconds = links.machine.ramp_bytes = 0;
  links.expert.bytes = 1 / kByte;
  const auto weights_across = [&](double slower) {
    links.topology = Topology::uniform(2, 2, {1e-9 / kByte, 0}, {1e-9 / kByte / slower, 0});
    const StepPlan plan = plan_of(with_random_sources(random, c), c.placement(), level(1, links));
    return predict_step(links, with_random_sources(random, c), plan).weight_bytes_across * kByte;
  };
  EXPECT_DOUBLE_EQ(weights_across(2), 1);   // worst rank 30 plus 4 s of transfers, instead of 40 plus 2
  EXPECT_DOUBLE_EQ(weights_across(10), 0);  // crossing would give 30 plus 20
}

TEST(LevelLinks, ThatCannotBeAreRefused) {
  std::mt19937_64 random(6);
  StepLinks links = random_links(random, 4, 100, true);
  EXPECT_THROW(make_planner({.kind = Kind::least_loaded, .links = links}), InvalidArgument);
  EXPECT_THROW(make_planner({.kind = Kind::level, .costs = SpillCosts{}, .links = links}), InvalidArgument);
  const Case other{{3, 4}, {{0}, {1}}, 2, {}};
  EXPECT_THROW(plan_of(other.counts(), other.placement(), level(1, links)), InvalidArgument);
  links.row_bytes = -1;
  EXPECT_THROW(make_planner(level(1, links)), InvalidArgument);
  links.row_bytes = 1;
  for (const Topology::Description& refused : {
           Topology::Description{.node_of_rank = {0, 1}},
           Topology::Description{.node_of_rank = {0, 1}, .links = {{}, {2, 0}, {1, 0}, {}}},
           Topology::Description{.node_of_rank = {0, 1}, .across = {2}, .speeds = {1, 2}},
           Topology::Description{.node_of_rank = {0, 1}, .across = {2}, .capacities = {4, 4}},
           Topology::Description{.node_of_rank = {0, 1}, .across = {2}, .devices_per_rank = 2},
       }) {
    links.topology = Topology(refused);
    EXPECT_THROW(make_planner(level(1, links)), InvalidArgument);
  }
}

}  // namespace
}  // namespace evenkeel
