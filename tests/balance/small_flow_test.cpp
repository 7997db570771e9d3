// SmallFlow against Hall's condition over all subsets of experts, and what it looks at where loads are large.
#include "evenkeel/balance/internal/small_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/balance/cases.h"

namespace evenkeel {
namespace {

using internal::SmallFlow;

struct Extra {
  std::size_t expert, rank;
  std::int64_t least;
};

struct Instance {
  std::vector<std::int64_t> loads;
  std::vector<SmallFlow::Ranks> homes;
  std::vector<std::int64_t> space;
  std::vector<Extra> extras;
};

// Spare capacities about as large as the loads need, half of them with nearly nothing to spare, so that about
// half of all instances fit.
Instance draw_instance(std::mt19937_64& random, std::int64_t largest) {
  Instance in;
  const auto experts = draw(random, 1, 7), ranks = draw(random, 2, 9);
  std::int64_t total = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    total += in.loads.emplace_back(draw(random, 0, largest));
    in.homes.push_back(SmallFlow::only(static_cast<std::size_t>(draw(random, 0, ranks - 1))) |
                       SmallFlow::only(static_cast<std::size_t>(draw(random, 0, ranks - 1))));
  }
  const std::int64_t unused = draw(random, 0, 1) * total / 100;
  for (std::int64_t r = 0; r < ranks; ++r)
    in.space.push_back(total / ranks + unused * draw(random, 0, 30) + draw(random, 0, 3));
  for (std::size_t e = 0; e < in.loads.size(); ++e)
    for (std::size_t r = 0; r < in.space.size(); ++r)
      if ((in.homes[e] & SmallFlow::only(r)) == 0 && draw(random, 0, 3) == 0)
        in.extras.push_back({e, r, std::min(in.loads[e], draw(random, 1, 3))});
  return in;
}

// Every subset of experts has ranks with enough spare capacity for what is left of the subset.
bool fits_by_subsets(const Instance& in) {
  auto rest = in.loads, space = in.space;
  auto allowed = in.homes;
  for (const Extra& x : in.extras) {
    rest[x.expert] -= x.least;
    space[x.rank] -= x.least;
    allowed[x.expert] |= SmallFlow::only(x.rank);
  }
  if (std::ranges::min(rest) < 0 || std::ranges::min(space) < 0) return false;
  for (std::size_t subset = 1; subset < std::size_t{1} << rest.size(); ++subset) {
    std::int64_t wanted = 0, offered = 0;
    SmallFlow::Ranks ranks = 0;
    for (std::size_t e = 0; e < rest.size(); ++e)
      if ((subset >> e & 1) != 0) wanted += rest[e], ranks |= allowed[e];
    SmallFlow::for_each_rank(ranks, [&](std::size_t r) { offered += space[r]; });
    if (wanted > offered) return false;
  }
  return true;
}

bool place(SmallFlow& flow, const Instance& in) {
  flow.begin(in.loads, in.homes, in.space);
  for (const Extra& x : in.extras) flow.allow(x.expert, x.rank, x.least);
  return flow.place_all();
}

void expect_sound(const SmallFlow& flow, const Instance& in) {
  auto space = in.space;
  for (std::size_t e = 0; e < in.loads.size(); ++e) {
    std::int64_t placed = 0;
    for (std::size_t r = 0; r < in.space.size(); ++r) {
      const std::int64_t given = flow.given(e, r);
      ASSERT_GE(given, 0);
      if ((flow.allowed(e) & SmallFlow::only(r)) == 0) {
        ASSERT_EQ(given, 0);
      }
      placed += given;
      space[r] -= given;
    }
    ASSERT_EQ(placed, in.loads[e]);
  }
  ASSERT_GE(std::ranges::min(space), 0);
  for (const Extra& x : in.extras) ASSERT_GE(flow.given(x.expert, x.rank), x.least);
}

// With so many paths found depth first, then shortest ones.
void compare_with_subsets(int deep_paths) {
  std::mt19937_64 random(1);
  SmallFlow flow(deep_paths);
  int fit = 0;
  const std::int64_t sizes[] = {6, 100, 5000, std::int64_t{1} << 30, std::int64_t{1} << 50};
  for (int i = 0; i < 20000; ++i) {
    const Instance in = draw_instance(random, sizes[i % 5]);
    SCOPED_TRACE(testing::Message() << "case " << i);
    const bool placed = place(flow, in);
    ASSERT_EQ(placed, fits_by_subsets(in));
    const auto experts = std::ssize(in.loads), ranks = std::ssize(in.space);
    ASSERT_LE(flow.visits(), ranks * (deep_paths + experts * ranks * (experts + ranks)));
    if (placed) expect_sound(flow, in);
    fit += placed;
  }
  EXPECT_GT(fit, 5000);
  EXPECT_LT(fit, 15000);
}

TEST(SmallFlow, FitsExactlyWhereEverySubsetOfExpertsHasTheCapacity) {
  compare_with_subsets(SmallFlow::kMostDeepPaths);
}

TEST(SmallFlow, FitsExactlyAlongShortestPathsAlone) {
  compare_with_subsets(0);
}

TEST(SmallFlow, FitsExactlyWhereShortestPathsFollowAFewOthers) {
  compare_with_subsets(5);
}

TEST(SmallFlow, StopsAtItsLimitOfVisits) {
  SmallFlow flow;
  const Instance in{{10, 10}, {SmallFlow::only(0), SmallFlow::only(1)}, {10, 10}, {}};
  ASSERT_TRUE(place(flow, in));
  EXPECT_EQ(flow.visits(), 2);
  flow.begin(in.loads, in.homes, in.space);
  EXPECT_FALSE(flow.place_all(1));
  EXPECT_EQ(flow.visits(), 1);
}

}  // namespace
}  // namespace evenkeel
