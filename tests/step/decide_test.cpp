// The memory that ranks need at the end of a step's backward pass.
#include "evenkeel/step/decide.h"

#include <gtest/gtest.h>

#include "evenkeel/budget/buffer_bytes.h"
#include "tests/budget/routed_step.h"

namespace evenkeel::testing {
namespace {

constexpr int kBlocks = 4;
constexpr std::int64_t kUnits = 40;

// Two ranks with one expert each. Of 80 assignments, 60 go to expert 0, and rank 1 computes 20 of these.
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
    make_planner(leveling)->plan(step.counts(), step.placement, decision.plan);
    shape.num_ranks = shape.num_experts = 2;
    shape.hidden = 8;
    shape.backward_weight_bytes = 50'000;
    shape.recompute_weight_bytes = 30'000;
    shape.gradient_bytes = 100'000;
  }
  bool fits(std::int64_t lender, std::int64_t borrower) {
    BufferBytes bytes(shape, Recompute::automatic);
    DecisionOptions options;
    options.expert = step_expert(shape);
    options.units = kUnits;
    StepDecider decider(bytes, options, 2);
    const RankMemory memories[] = {{.tokens = 40, .free_bytes = lender},
                                   {.tokens = 40, .free_bytes = borrower}};
    const BlockTable table = block_table(step, kBlocks, numbers);
    const Counts counts = step.counts();
    decider.decide({.pass = StepPass::backward,
                    .table = table,
                    .counts = counts,
                    .homes = step.placement,
                    .memories = memories,
                    .holds_borrowed = true},
                   decision);
    return !decision.chunks.empty();
  }

  RoutedStep step;
  std::vector<std::int32_t> numbers;
  StepDecision decision;
  ChunkShape shape;
};

TEST(Decide, WantsSpaceForAnArrivingGradientOnlyWhereWeightsWereLent) {
  LentExpert lent;
  ASSERT_EQ(lent.decision.plan.transfers().size(), 1u);
  const std::int64_t chunk = recompute_bytes(lent.shape, largest_load(lent.shape, 1));
  ASSERT_LT(chunk, 10'000);
  EXPECT_TRUE(lent.fits(100'000, 180'000 + chunk));
  EXPECT_FALSE(lent.fits(100'000 - 1, 180'000 + chunk));
  EXPECT_FALSE(lent.fits(100'000, 180'000));
}

}  // namespace
}  // namespace evenkeel::testing
