// Chunk loads predicted from block tables, checked against the same chunks dealt token by token.
#include "evenkeel/budget/block_loads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/budget/routed_step.h"

namespace evenkeel::testing {
namespace {

struct Gathered {
  Gathered(const RoutedStep& step, int blocks) : table(block_table(step, blocks, numbers)) {}
  std::vector<std::int32_t> numbers;
  BlockTable table;
};

RoutedStep any_step(std::mt19937_64& random, bool copies) {
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const int ranks = between(1, 6);
  return random_step(random, ranks, between(1, 12), between(1, 5), between(0, 60), copies);
}

bool ids_repeat(const RoutedStep& step) {
  const auto k = static_cast<std::ptrdiff_t>(step.k);
  for (const auto& ids : step.ids)
    for (auto token = ids.begin(); token != ids.end(); token += k) {
      std::multiset<std::int32_t> chosen(token, token + k);
      chosen.erase(-1);
      if (std::set<std::int32_t>(chosen.begin(), chosen.end()).size() != chosen.size()) return true;
    }
  return false;
}

// What a rank's first `tokens` tokens chose, counted token by token.
struct Chosen {
  Chosen(const RoutedStep& step, RankId rank, std::int64_t tokens)
      : assignments(static_cast<std::size_t>(step.experts())),
        choosers(assignments),
        visitors(static_cast<std::size_t>(step.ranks())),
        home_assignments(visitors),
        home_choosers(visitors) {
    for (std::int64_t t = 0; t < tokens; ++t) add_token(step, step.ids[rank.offset()], t);
  }
  void add_token(const RoutedStep& step, const std::vector<std::int32_t>& ids, std::int64_t token) {
    std::set<std::int32_t> chosen;
    std::set<std::size_t> visited;
    for (std::int64_t a = token * step.k; a < (token + 1) * step.k; ++a) {
      const std::int32_t id = ids[static_cast<std::size_t>(a)];
      if (id < 0) continue;
      const auto homes = step.placement.homes(ExpertId(id));
      ++total;
      ++assignments[static_cast<std::size_t>(id)];
      if (homes.size() == 1) ++home_assignments[homes.front().offset()];
      chosen.insert(id);
      for (RankId home : homes) visited.insert(home.offset());
    }
    for (std::int32_t id : chosen) {
      ++choosers[static_cast<std::size_t>(id)];
      const auto homes = step.placement.homes(ExpertId(id));
      if (homes.size() == 1) ++home_choosers[homes.front().offset()];
    }
    for (std::size_t home : visited) ++visitors[home];
  }
  std::vector<std::int32_t> assignments, choosers, visitors, home_assignments, home_choosers;
  std::int32_t total = 0;
};

TEST(BlockTable, HoldsWhatTheTokensUpToEachBlockChose) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    const RoutedStep step = any_step(random, round % 2 == 1);
    const int blocks = 1 + static_cast<int>(random() % 9);
    const Gathered gathered(step, blocks);
    for (RankId rank : indices<RankId>(step.ranks())) {
      const auto& ids = step.ids[rank.offset()];
      const auto tokens = static_cast<std::int64_t>(ids.size()) / step.k;
      for (int block = 0; block < blocks; ++block) {
        const Chosen expected(step, rank, tokens * (block + 1) / blocks);
        const BlockTable& table = gathered.table;
        ASSERT_TRUE(std::ranges::equal(table.assignments(rank, block), expected.assignments));
        ASSERT_TRUE(std::ranges::equal(table.choosers(rank, block), expected.choosers));
        ASSERT_TRUE(std::ranges::equal(table.visitors(rank, block), expected.visitors));
        ASSERT_TRUE(std::ranges::equal(table.home_assignments(rank, block), expected.home_assignments));
        ASSERT_TRUE(std::ranges::equal(table.home_choosers(rank, block), expected.home_choosers));
        ASSERT_EQ(table.total(rank, block), expected.total);
      }
    }
    Counts counts;
    gathered.table.sum(counts);
    ASSERT_TRUE(std::ranges::equal(counts.rows(), step.counts().rows()));
    ASSERT_TRUE(std::ranges::equal(counts.loads(), step.counts().loads()));
  }
}

// Chunks of whole blocks, cut at random.
std::vector<Chunk> random_cut(int blocks, std::mt19937_64& random) {
  std::vector<Chunk> chunks;
  for (std::int64_t begin = 0; begin < blocks;) {
    const auto end = begin + 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(blocks - begin));
    chunks.push_back({begin, end});
    begin = end;
  }
  return chunks;
}

// Calls check(step, plan, predicted load, dealt load) for each chunk and rank of random steps.
template <class Check>
void for_each_load(std::uint64_t seed, int rounds, const Check& check) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round) {
    const RoutedStep step = any_step(random, round % 2 == 1);
    const StepPlan plan = random_plan(step, random);
    const int blocks = 1 + static_cast<int>(random() % 9);
    const Gathered gathered(step, blocks);
    BlockLoads loads;
    loads.read(gathered.table, step.placement, step.tokens(), step.k);
    loads.follow(plan);
    const std::vector<Chunk> chunks = random_cut(blocks, random);
    const auto dealt = dealt_loads(step, plan, chunks, blocks);
    for (std::size_t c = 0; c < chunks.size(); ++c)
      for (RankId rank : indices<RankId>(step.ranks())) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round) + ", chunk " +
                     std::to_string(c) + ", rank " + std::to_string(rank.value()));
        check(step, plan,
              loads.load(rank, static_cast<int>(chunks[c].begin), static_cast<int>(chunks[c].end)),
              dealt[c][rank.offset()]);
        if (::testing::Test::HasFatalFailure()) return;
      }
  }
}

TEST(BlockLoads, KnowAssignmentsAndPositionsExactlyAndBoundRowsAndGroupsFromAbove) {
  for_each_load(2, 1500, [](const auto&, const auto&, const ChunkLoad& known, const ChunkLoad& dealt) {
    ASSERT_EQ(known.tokens, dealt.tokens);
    ASSERT_EQ(known.assignments, dealt.assignments);
    ASSERT_EQ(known.assignments_kept, dealt.assignments_kept);
    ASSERT_EQ(known.positions_here, dealt.positions_here);
    ASSERT_EQ(known.own_split, dealt.own_split);
    ASSERT_EQ(known.own_runs, dealt.own_runs);
    ASSERT_GE(known.rows_here, dealt.rows_here);
    ASSERT_GE(known.rows_received, dealt.rows_received);
    ASSERT_GE(known.rows_elsewhere, dealt.rows_elsewhere);
    ASSERT_GE(known.groups, dealt.groups);
  });
}

TEST(BlockLoads, KnowRowsExactlyWhereNoExpertIsLentOrSplitAndNoIdRepeats) {
  int seen = 0;
  for_each_load(
      4, 1500,
      [&](const RoutedStep& step, const StepPlan& plan, const ChunkLoad& known, const ChunkLoad& dealt) {
        if (plan.spilled() || !step.placement.has_single_homes() || ids_repeat(step)) return;
        ++seen;
        ASSERT_EQ(known.rows_here, dealt.rows_here);
        ASSERT_EQ(known.rows_received, dealt.rows_received);
        ASSERT_EQ(known.rows_elsewhere, dealt.rows_elsewhere);
      });
  EXPECT_GT(seen, 500);
}

void expect_no_more_bytes(const ChunkShape& shape, const ChunkLoad& load, const ChunkLoad& bound, int round) {
  for (bool kept : {false, true}) {
    const auto saved = [&](const ChunkLoad& of) { return kept ? of.positions_here : 0; };
    ASSERT_LE(forward_bytes(shape, load, saved(load)), forward_bytes(shape, bound, saved(bound))) << round;
    ASSERT_LE(backward_bytes(shape, load, saved(load)), backward_bytes(shape, bound, saved(bound))) << round;
    ASSERT_LE(held_bytes(shape, load, saved(load)), held_bytes(shape, bound, saved(bound))) << round;
  }
  ASSERT_LE(recompute_bytes(shape, load), recompute_bytes(shape, bound)) << round;
}

// A part of a chunk may have fewer assignments than the chunk, but must never need more bytes.
TEST(BlockLoads, BoundTheBytesOfEveryPart) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 1500; ++round) {
    const RoutedStep step = any_step(random, round % 2 == 1);
    const StepPlan plan = random_plan(step, random);
    constexpr int kBlocks = 4;
    constexpr std::int64_t kUnits = 64;
    const Gathered gathered(step, kBlocks);
    BlockLoads loads;
    loads.read(gathered.table, step.placement, step.tokens(), step.k);
    loads.follow(plan);
    ChunkShape shape;
    shape.num_ranks = step.ranks();
    shape.num_experts = step.experts();
    shape.top_k = step.k;
    shape.hidden = 1 + static_cast<std::int64_t>(random() % 40);
    shape.element_bytes = random() % 2 == 0 ? 2 : 4;
    shape.saved_bytes = 2 * shape.hidden;
    const std::vector<Chunk> chunks = random_cut(kUnits, random);
    const auto dealt = dealt_loads(step, plan, chunks, kUnits);
    constexpr std::int64_t kBlockUnits = kUnits / kBlocks;
    for (std::size_t c = 0; c < chunks.size(); ++c)
      for (RankId rank : indices<RankId>(step.ranks())) {
        const ChunkLoad bound =
            loads.bound(rank, static_cast<int>(chunks[c].begin / kBlockUnits),
                        static_cast<int>((chunks[c].end + kBlockUnits - 1) / kBlockUnits));
        const ChunkLoad& part = dealt[c][rank.offset()];
        expect_no_more_bytes(shape, part, bound, round);
        if (HasFatalFailure()) return;
      }
  }
}

PlanExperts experts_of(const RoutedStep& step, const StepPlan& plan) {
  std::vector<std::int64_t> of_rank(static_cast<std::size_t>(step.ranks()));
  PlanExperts experts{0, false};
  for (ExpertId expert : indices<ExpertId>(step.experts())) {
    for (const Segment& segment : plan.segments(expert)) ++of_rank[segment.rank.offset()];
    experts.split = experts.split || plan.splits(expert, step.placement);
  }
  experts.of_rank = std::ranges::max(of_rank);
  return experts;
}

TEST(BlockLoads, KnowHowManyExpertsARankComputesAtMost) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    const RoutedStep step = any_step(random, round % 2 == 1);
    const StepPlan plan = random_plan(step, random);
    const Gathered gathered(step, 4);
    BlockLoads loads;
    loads.read(gathered.table, step.placement, step.tokens(), step.k);
    loads.follow(plan);
    const PlanExperts expected = experts_of(step, plan);
    ASSERT_EQ(loads.experts().of_rank, expected.of_rank) << round;
    ASSERT_EQ(loads.experts().split, expected.split) << round;
  }
}

TEST(LargestLoad, BoundsTheBytesOfEveryRoutingOfSoManyTokensUnderEveryPlan) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 6000; ++round) {
    const auto between = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    const int tokens = round % 3 == 0 ? 1 : between(1, 9);
    const RoutedStep step =
        random_step(random, between(1, 7), between(1, 9), between(1, 6), tokens, round % 2 == 1);
    const StepPlan plan = random_plan(step, random);
    ChunkShape shape;
    shape.num_ranks = step.ranks();
    shape.num_experts = step.experts();
    shape.top_k = step.k;
    shape.hidden = between(1, 40) * (round % 5 == 0 ? 16 : 1);
    shape.element_bytes = between(1, 2) * 2;
    shape.saved_bytes = between(0, 100);
    const Chunk whole{0, 1};
    const auto dealt = dealt_loads(step, plan, {&whole, 1}, 1);
    const PlanExperts experts = round % 2 == 0 ? PlanExperts{} : experts_of(step, plan);
    for (const ChunkLoad& load : dealt.front()) {
      const ChunkLoad largest = largest_load(shape, tokens, experts);
      expect_no_more_bytes(shape, load, largest, round);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace evenkeel::testing
