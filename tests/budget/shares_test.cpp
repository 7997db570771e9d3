// Cutting a step's plan into plans of its chunks.
#include "evenkeel/budget/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "evenkeel/balance/planner.h"
#include "evenkeel/plan/check.h"

namespace evenkeel {
namespace {

std::vector<Segment> segments_of(const std::vector<std::int64_t>& sizes) {
  std::vector<Segment> segments;
  std::int64_t begin = 0;
  int rank = 0;
  for (std::int64_t size : sizes) {
    segments.push_back({RankId(rank++), begin, begin + size});
    begin += size;
  }
  return segments;
}

std::vector<std::int64_t> shared(const std::vector<Segment>& segments, std::int64_t n) {
  std::vector<std::int64_t> shares(segments.size(), -1);
  share_out(segments, n, shares);
  return shares;
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// Sizes that may expose rounding errors: 1 beside 2^40, equal sizes, random sizes of all magnitudes.
std::vector<std::vector<std::int64_t>> adversarial_sizes() {
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  std::vector<std::vector<std::int64_t>> all = {
      {1}, {kLarge}, {1, kLarge}, {kLarge, 1}, {1, 1, 1, 1}, {kLarge, kLarge}, {1, kLarge, 1}, {3, 5, 7, 11}};
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::int64_t> sizes(1 + random() % 9);
    for (auto& size : sizes) size = 1 + static_cast<std::int64_t>(random() % (1ull << (1 + random() % 40)));
    all.push_back(sizes);
  }
  return all;
}

TEST(Shares, AddUpToTheAssignmentsAndAtTheLoadAreTheSegments) {
  std::mt19937_64 random(1);
  for (const auto& sizes : adversarial_sizes()) {
    const auto segments = segments_of(sizes);
    const std::int64_t load = segments.back().end;
    for (int i = 0; i < 50; ++i) {
      const auto n = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(load + 1));
      EXPECT_EQ(sum(shared(segments, n)), n);
    }
    EXPECT_EQ(shared(segments, load), sizes);
    EXPECT_EQ(sum(shared(segments, 0)), 0);
  }
}

TEST(Shares, NeverShrinkAsAssignmentsAreAdded) {
  std::mt19937_64 random(2);
  for (const auto& sizes : adversarial_sizes()) {
    const auto segments = segments_of(sizes);
    const std::int64_t load = segments.back().end;
    auto n = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(load));
    std::vector<std::int64_t> before = shared(segments, n);
    for (int i = 0; i < 200 && n < load; ++i) {
      n = std::min(load, n + 1 + static_cast<std::int64_t>(i % 10 == 9 ? random() % 1000 : 0));
      const std::vector<std::int64_t> after = shared(segments, n);
      for (std::size_t s = 0; s < after.size(); ++s)
        ASSERT_GE(after[s], before[s]) << "of " << sizes[s] << " at " << n << " of " << load;
      before = after;
    }
  }
}

// The first segment's share follows the rule; each later share applies the rule to the remainder.
TEST(Shares, AreProportionalRoundedDown) {
  EXPECT_EQ(shared(segments_of({600, 400}), 10), (std::vector<std::int64_t>{6, 4}));
  EXPECT_EQ(shared(segments_of({600, 400}), 999), (std::vector<std::int64_t>{599, 400}));
  EXPECT_EQ(shared(segments_of({1, 1, 1}), 1), (std::vector<std::int64_t>{0, 0, 1}));
  EXPECT_EQ(shared(segments_of({1, 1, 1}), 2), (std::vector<std::int64_t>{0, 1, 1}));
}

TEST(ChunkShares, AreSoundPlansOfTheirCountsThatAddUpToTheSteps) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 6);
    const int experts = 1 + static_cast<int>(random() % 12);
    std::vector<std::vector<int>> homes(static_cast<std::size_t>(experts));
    for (auto& of_expert : homes) {
      of_expert = {static_cast<int>(random() % static_cast<unsigned>(ranks))};
      if (const int second = static_cast<int>(random() % static_cast<unsigned>(ranks));
          second != of_expert.front())
        of_expert.push_back(second);
    }
    const LayerPlacement placement(homes, ranks);
    const std::size_t chunks = 1 + random() % 6;
    std::vector<Counts> parts(chunks, Counts(ranks, experts));
    Counts step(ranks, experts);
    const std::uint64_t most = 1ull << (random() % 36);
    for (Counts& part : parts) {
      for (std::size_t i = 0; i < part.rows().size(); ++i) {
        part.rows()[i] = random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % most);
        step.rows()[i] += part.rows()[i];
      }
      part.sum_loads();
    }
    step.sum_loads();
    StepPlan plan;
    make_planner({PlannerOptions::Kind::level, 1000, 1, 0})->plan(step, placement, plan);

    ChunkShares shares;
    shares.begin(plan);
    StepPlan chunk;
    std::vector<std::vector<std::int64_t>> computed(
        static_cast<std::size_t>(experts), std::vector<std::int64_t>(static_cast<std::size_t>(ranks)));
    for (const Counts& part : parts) {
      shares.next(part, placement, chunk);
      ASSERT_EQ(check_plan(part, placement, chunk), std::vector<std::string>{}) << "round " << round;
      for (ExpertId expert : indices<ExpertId>(experts))
        for (const Segment& segment : chunk.segments(expert))
          computed[expert.offset()][segment.rank.offset()] += segment.size();
    }
    for (ExpertId expert : indices<ExpertId>(experts)) {
      for (const Segment& segment : plan.segments(expert))
        computed[expert.offset()][segment.rank.offset()] -= segment.size();
      ASSERT_EQ(computed[expert.offset()], std::vector<std::int64_t>(static_cast<std::size_t>(ranks)));
    }
  }
}

}  // namespace
}  // namespace evenkeel
