// Chunks fit their limits whatever they contain, and there are no more of them than necessary.
#include "evenkeel/budget/chunk_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <span>

#include "evenkeel/budget/buffer_bytes.h"
#include "tests/budget/routed_step.h"

namespace evenkeel::testing {
namespace {

constexpr int kBlocks = 8;

// A step, its blocks, and byte limits that range from one token per rank to the whole step.
struct Case {
  Case(std::mt19937_64& random, bool plain) {
    const auto between = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    step =
        random_step(random, between(1, 5), between(1, 10), between(1, 4), 80, !plain && between(0, 3) == 0);
    plan = plain ? plain_plan(step) : random_plan(step, random);
    loads.read(block_table(step, kBlocks, numbers), step.placement, step.tokens(), step.k);
    loads.follow(plan);
    shape.num_ranks = step.ranks();
    shape.num_experts = step.experts();
    shape.top_k = step.k;
    shape.hidden = between(1, 64);
    shape.element_bytes = 2 * between(1, 2);
    model.emplace(shape, Recompute::automatic);
    use = between(0, 1) == 0 ? ChunkUse::forward : ChunkUse::recompute;
    foreign.resize(static_cast<std::size_t>(step.ranks()));
    const std::int64_t least = bytes(largest_load(shape, 1));
    for (RankId rank : indices<RankId>(step.ranks())) {
      const std::int64_t all = bytes(loads.load(rank, 0, kBlocks));
      limits.push_back(least + static_cast<std::int64_t>(random() % 100) *
                                   std::max<std::int64_t>(all - least, 100) / 99);
    }
  }
  bool fits(int begin, int end) const {
    for (RankId rank : indices<RankId>(step.ranks()))
      if (bytes(loads.load(rank, begin, end)) > limits[rank.offset()]) return false;
    return true;
  }
  std::int64_t bytes(const ChunkLoad& load) const { return model->bytes(use, load, {}); }
  ChunkLimits chunk_limits() const { return {*model, use, foreign, limits}; }

  RoutedStep step;
  StepPlan plan;
  std::vector<std::int32_t> numbers;
  BlockLoads loads;
  ChunkShape shape;
  std::optional<BufferBytes> model;
  ChunkUse use = ChunkUse::forward;
  std::vector<ForeignLoad> foreign;
  std::vector<std::int64_t> limits;
};

constexpr std::int64_t kUnits = 80;  // a multiple of kBlocks; no rank has more tokens

std::vector<Chunk> cut(const Case& problem) {
  std::vector<Chunk> chunks;
  EXPECT_TRUE(cut_into_chunks(problem.chunk_limits(), problem.loads, 0, kUnits, chunks));
  return chunks;
}

// The fewest chunks of any cut into whole blocks, found by trying all; a huge number if no cut fits.
int fewest(const Case& problem) {
  constexpr int kNever = std::numeric_limits<int>::max() / 2;
  std::vector<int> least(kBlocks + 1, kNever);
  least[0] = 0;
  for (int end = 1; end <= kBlocks; ++end)
    for (int begin = 0; begin < end; ++begin)
      if (problem.fits(begin, end))
        least[static_cast<std::size_t>(end)] =
            std::min(least[static_cast<std::size_t>(end)], least[static_cast<std::size_t>(begin)] + 1);
  return least[kBlocks] >= kNever ? kNever : least[kBlocks];
}

TEST(ChunkPlanner, CoversTheStepInOrderWithChunksThatFitOnceDealt) {
  std::mt19937_64 random(1);
  std::size_t parts = 0;
  for (int round = 0; round < 4000; ++round) {
    const Case problem(random, round % 2 == 0);
    const std::vector<Chunk> chunks = cut(problem);
    std::int64_t at = 0;
    for (const Chunk& chunk : chunks) {
      ASSERT_EQ(chunk.begin, at);
      ASSERT_GT(chunk.end, chunk.begin);
      parts += chunk.end % (kUnits / kBlocks) != 0 ? 1 : 0;
      at = chunk.end;
    }
    ASSERT_EQ(at, kUnits);
    const auto dealt = dealt_loads(problem.step, problem.plan, chunks, kUnits);
    for (std::size_t c = 0; c < chunks.size(); ++c)
      for (std::size_t rank = 0; rank < problem.limits.size(); ++rank)
        ASSERT_LE(problem.bytes(dealt[c][rank]), problem.limits[rank])
            << "round " << round << ", chunk " << c << ", rank " << rank;
  }
  EXPECT_GT(parts, 1000u) << "too few chunks end inside a block for the test to be meaningful";
}

TEST(ChunkPlanner, FindsTheMostTokensThatFitWhereverTheyGo) {
  std::mt19937_64 random(7);
  int none = 0, some = 0, all = 0;
  for (int round = 0; round < 500; ++round) {
    Case problem(random, true);
    if (round % 4 == 0) problem.limits.front() = problem.bytes(problem.loads.largest(1)) - 1;
    const std::int64_t most = 1 + static_cast<std::int64_t>(random() % kUnits);
    std::int64_t expected = 0;
    while (expected < most && std::ranges::all_of(problem.limits, [&](std::int64_t limit) {
             return problem.bytes(problem.loads.largest(expected + 1)) <= limit;
           }))
      ++expected;
    ASSERT_EQ(tokens_of_any_routing(problem.chunk_limits(), problem.loads, most), expected) << round;
    (expected == 0 ? none : expected < most ? some : all) += 1;
  }
  EXPECT_GE(std::min({none, some, all}), 20);
}

// Always if no expert is split, almost always otherwise.
TEST(ChunkPlanner, TakesTheFewestChunks) {
  for (const bool plain : {true, false}) {
    std::mt19937_64 random(plain ? 2 : 3);
    int feasible = 0, several = 0, more = 0;
    for (int round = 0; round < 5000; ++round) {
      const Case problem(random, plain);
      const int least = fewest(problem);
      if (least > kBlocks) continue;
      ++feasible;
      several += least > 1 ? 1 : 0;
      const auto taken = static_cast<int>(cut(problem).size());
      ASSERT_TRUE(!plain || taken == least) << "round " << round;
      more += taken > least ? 1 : 0;
    }
    EXPECT_GT(feasible, 1000);
    EXPECT_GT(several, 500);
    EXPECT_LE(more, feasible / 1000);
  }
}

TEST(ChunkPlanner, SaysNoWithNothingAppendedWhereNotEvenOneTokenFits) {
  std::mt19937_64 random(4);
  std::optional<Case> any;  // constructed in place: its loads refer to it
  do any.emplace(random, true);
  while (any->step.counts().total() < 100);
  Case& problem = *any;
  problem.limits.assign(problem.limits.size(), problem.bytes(problem.loads.largest(1)) - 1);
  std::vector<Chunk> chunks = {{3, 4}};
  EXPECT_FALSE(cut_into_chunks(problem.chunk_limits(), problem.loads, 0, kUnits, chunks));
  EXPECT_EQ(chunks, (std::vector<Chunk>{{3, 4}}));
}

}  // namespace
}  // namespace evenkeel::testing
