// The bytes of a chunk are those of the most demanding phase on the rank with the most, counted assignment by
// assignment.
#include "evenkeel/balance/phase_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "tests/plan/deal_oracle.h"

namespace evenkeel::testing {
namespace {

std::vector<RankPart> counted(const Choices& choices, const StepPlan& plan) {
  const auto to = destinations(choices, plan);
  std::vector<RankPart> loads(choices.ids.size());
  for (std::size_t source = 0; source < to.size(); ++source) {
    loads[source].tokens = static_cast<std::int64_t>(choices.ids[source].size()) / choices.k;
    for (const int rank : to[source]) {
      if (rank < 0) continue;
      const auto there = static_cast<std::size_t>(rank);
      ++loads[source].assignments;
      ++loads[there].positions;
      if (there == source) continue;
      ++loads[source].sent;
      ++loads[there].received;
    }
  }
  for (const Transfer& transfer : plan.transfers()) {
    ++loads[transfer.to.offset()].borrowed;
    ++loads[transfer.from.offset()].lent;
  }
  return loads;
}

TEST(ChunkCuts, CountWhatEveryRankHas) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int ranks = static_cast<int>(random() % 6) + 1;
    const Choices choices = random_choices(random, ranks);
    StepPlan plan;
    make_planner({PlannerOptions::Kind::level, 1000, 1, 0})
        ->plan(choices.counts(), LayerPlacement::contiguous(choices.num_experts, ranks), plan);
    const auto some = [&] { return static_cast<std::int64_t>(random() % 100); };
    std::vector<PhaseBytes> phases(1 + random() % 3);
    for (PhaseBytes& phase : phases) phase = {some(), some(), some(), some(), some(), some(), some(), some()};
    std::int64_t most = 0;
    std::vector<std::int64_t> tokens;
    for (const RankPart& load : counted(choices, plan)) {
      tokens.push_back(load.tokens);
      for (const PhaseBytes& p : phases)
        most = std::max(most, p.fixed + p.per_token * load.tokens + p.per_assignment * load.assignments +
                                  p.per_sent * load.sent + p.per_received * load.received +
                                  p.per_position * load.positions + p.per_borrowed * load.borrowed +
                                  p.per_lent * load.lent);
    }
    EXPECT_EQ(most_bytes(choices.counts(), plan, tokens, phases), most) << seed;
  }
}

TEST(ChunkCuts, TheLongestRunHasBeenTriedItself) {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const int blocks = static_cast<int>(random() % 20) + 1, first = static_cast<int>(random() % 20) % blocks;
    std::vector<bool> fits(static_cast<std::size_t>(blocks) + 1);
    for (std::size_t end = 0; end < fits.size(); ++end) fits[end] = random() % 3 != 0;
    const int end = longest(first, blocks, [&](int e) { return fits[static_cast<std::size_t>(e)]; });
    EXPECT_TRUE(end == first || fits[static_cast<std::size_t>(end)]);
    EXPECT_TRUE(end == blocks || !fits[static_cast<std::size_t>(end) + 1]) << "one more would have fitted";
  }
}

}  // namespace
}  // namespace evenkeel::testing
