// The memory that a step needs at the end of its backward pass, and on which ranks; and a step of which no
// table can be made.
#include "evenkeel/budget/step_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/budget/routed_step.h"

namespace evenkeel::testing {
namespace {

constexpr int kBlocks = 4;
constexpr std::int64_t kUnits = 40;

// Two ranks with an expert each, of whose 80 assignments 60 go to expert 0: rank 1 computes 20 of them.
struct LentExpert {
  LentExpert() {
    step.k = 1;
    step.placement = LayerPlacement::contiguous(2, 2);
    for (int rank = 0; rank < 2; ++rank) {
      step.ids.emplace_back(40, 0);
      for (int token = 0; token < 10; ++token) step.ids.back()[static_cast<std::size_t>(4 * token)] = 1;
    }
    PlannerOptions leveling{PlannerOptions::Kind::level};
    leveling.min_segment = 1;
    make_planner(leveling)->plan(step.counts(), step.placement, plan);
    shape.num_ranks = shape.num_experts = 2;
    shape.hidden = 8;
    shape.backward_weight_bytes = 50'000;
    shape.recompute_weight_bytes = 30'000;
    shape.gradient_bytes = 100'000;
  }
  bool fits(std::int64_t lender, std::int64_t borrower) {
    StepMemory memory(shape, {}, kUnits);
    const RankMemory memories[] = {{.tokens = 40, .gap = lender}, {.tokens = 40, .gap = borrower}};
    return memory.cut_backward(block_table(step, kBlocks, numbers), memories, step.placement, plan);
  }

  RoutedStep step;
  std::vector<std::int32_t> numbers;
  StepPlan plan;
  ChunkShape shape;
};

TEST(StepMemory, WantsSpaceForAnArrivingGradientOnlyWhereWeightsWereLent) {
  LentExpert lent;
  ASSERT_EQ(lent.plan.transfers().size(), 1u);
  const std::int64_t chunk = recompute_bytes(lent.shape, largest_load(lent.shape, 1));
  ASSERT_LT(chunk, 10'000);
  EXPECT_TRUE(lent.fits(100'000, 180'000 + chunk));
  EXPECT_FALSE(lent.fits(100'000 - 1, 180'000 + chunk));
  EXPECT_FALSE(lent.fits(100'000, 180'000));
}

ChunkShape shape_of(const RoutedStep& step) {
  ChunkShape shape;
  shape.num_ranks = step.ranks();
  shape.num_experts = step.experts();
  shape.top_k = step.k;
  shape.hidden = 24;
  shape.gradient_bytes = 3000;
  return shape;
}

// From a token a rank to all of them, wherever they go.
TEST(StepMemory, CutsAStepWithoutATableIntoEqualChunksThatFit) {
  std::mt19937_64 random(3);
  int one = 0, several = 0;
  for (int round = 0; round < 1000; ++round) {
    const bool copies = round % 3 == 0, backward = round % 2 == 0;
    const RoutedStep step = random_step(random, 1 + round % 4, 1 + round % 9, 1 + round % 3, kUnits, copies);
    const ChunkShape shape = shape_of(step);
    const auto bytes_of = [&](const ChunkLoad& load) {
      return backward ? recompute_bytes(shape, load) : forward_bytes(shape, load, 0);
    };
    const std::int64_t least = bytes_of(largest_load(shape, 1));
    const std::int64_t available = least + static_cast<std::int64_t>(random() % 200) * least / 10;
    const std::int64_t gradients = backward && copies ? step.experts() * shape.gradient_bytes : 0;
    std::vector<RankMemory> memories;
    for (std::int64_t tokens : step.tokens())
      memories.push_back({.tokens = tokens, .gap = available + gradients});
    StepMemory memory(shape, {}, kUnits);
    StepPlan plan;
    memory.choose_for_any_routing(backward ? StepPass::backward : StepPass::forward, step.counts(), memories,
                                  step.placement, plan);
    ASSERT_EQ(memory.chunks().front().begin, 0);
    ASSERT_EQ(memory.chunks().back().end, kUnits);
    (memory.chunks().size() == 1 ? one : several) += 1;
    const std::int64_t most = std::max<std::int64_t>(std::ranges::max(step.tokens()), 1);
    ASSERT_LE(std::ssize(memory.chunks()), 2 * most);
    for (const auto& chunk : dealt_loads(step, plan, memory.chunks(), kUnits))
      for (const ChunkLoad& load : chunk) ASSERT_LE(bytes_of(load), available + gradients) << round;
  }
  EXPECT_GE(std::min(one, several), 100);
}

TEST(StepMemory, CutsAStepWithoutATableIntoNoFewerChunksThanAreAskedFor) {
  std::mt19937_64 random(4);
  const RoutedStep step = random_step(random, 2, 4, 2, kUnits, false);
  MemoryOptions options;
  options.rule = {ChunkRule::Kind::equal, 5};
  StepMemory memory(shape_of(step), options, kUnits);
  StepPlan plan;
  const std::vector<RankMemory> memories(2, {.tokens = kUnits, .gap = 1 << 20});
  memory.choose_for_any_routing(StepPass::forward, step.counts(), memories, step.placement, plan);
  EXPECT_EQ(memory.chunks().size(), 5u);
}

}  // namespace
}  // namespace evenkeel::testing
