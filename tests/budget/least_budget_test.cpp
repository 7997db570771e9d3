// The least budget: what it grows with, and how close it is to a lower bound.
#include "evenkeel/budget/least_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace evenkeel {
namespace {

BudgetShape shape_of(std::int64_t hidden, int ranks, int experts, int k, std::int64_t max_tokens,
                     int states) {
  BudgetShape shape;
  shape.chunk.num_ranks = ranks;
  shape.chunk.num_experts = experts;
  shape.chunk.top_k = k;
  shape.chunk.hidden = hidden;
  shape.chunk.element_bytes = 2;
  shape.chunk.saved_bytes = 4 * hidden;
  shape.chunk.weight_bytes = 6 * hidden * hidden;
  shape.chunk.forward_weight_bytes = shape.chunk.backward_weight_bytes = shape.chunk.weight_bytes;
  shape.chunk.recompute_weight_bytes = 4 * hidden * hidden;
  shape.chunk.gradient_bytes = 12 * hidden * hidden;
  shape.max_tokens = max_tokens;
  shape.states_in_flight = states;
  return shape;
}

// A chunk spans all ranks and has at least one token from each; all its tokens may go to one rank. In forward
// that rank holds the other ranks' rows, and k results per token. In backward it holds those rows, as many
// gradient rows, and the gradient rows it computes, in f32. Each state in flight holds the ids and router
// weights of its tokens. Memory inside matrix products counts as zero, which makes the least budget look
// worse.
std::int64_t lower_bound(const BudgetShape& shape) {
  const ChunkShape& chunk = shape.chunk;
  const std::int64_t tokens = chunk.num_ranks;
  const std::int64_t row = chunk.hidden * chunk.element_bytes;
  const std::int64_t forward = (tokens - 1) * row + tokens * chunk.top_k * row;
  const std::int64_t backward = 2 * (tokens - 1) * row + tokens * chunk.hidden * 4;
  const std::int64_t states = shape.states_in_flight * shape.max_tokens * chunk.top_k * (4 + 4);
  return std::max(forward, backward) + states;
}

TEST(LeastBudget, IsWithinTwoHundredthsOfWhatNobodyCanDoWithout) {
  double worst = 0;
  for (std::int64_t hidden : {768, 1024, 2048, 4096, 7168})
    for (int ranks : {2, 4, 8, 16, 32, 64})
      for (int experts : {8, 16, 64, 128, 256, 384})
        for (int k : {1, 2, 4, 6, 8})
          for (std::int64_t max_tokens : {512, 2048, 4096, 16384})
            for (int states : {1, 2, 4}) {
              if (experts < ranks) continue;
              const BudgetShape shape = shape_of(hidden, ranks, experts, k, max_tokens, states);
              const double ratio =
                  static_cast<double>(least_budget(shape)) / static_cast<double>(lower_bound(shape));
              worst = std::max(worst, ratio);
              ASSERT_GE(ratio, 1.0);
              ASSERT_LE(ratio, 1.02) << "hidden " << hidden << ", " << ranks << " ranks, " << experts
                                     << " experts, top-" << k << ", " << max_tokens << " tokens, " << states
                                     << " states";
            }
  RecordProperty("worst_ratio", std::to_string(worst));
}

TEST(LeastBudget, IsTheStepsAndTheStates) {
  const BudgetShape shape = shape_of(768, 8, 128, 4, 2048, 3);
  EXPECT_EQ(least_budget(shape), least_step_bytes(shape) + least_state_bytes(shape));
  EXPECT_EQ(least_state_bytes(shape), 3 * 2 * 2048 * 4 * 4);
}

TEST(LeastBudget, OfAStepDoesNotDependOnTheTokensUnlessAStepMustFitWhole) {
  EXPECT_EQ(least_step_bytes(shape_of(768, 8, 128, 4, 2048, 1)),
            least_step_bytes(shape_of(768, 8, 128, 4, 16384, 1)));
  for (Recompute recompute : {Recompute::none, Recompute::whole}) {
    BudgetShape shape = shape_of(768, 8, 128, 4, 2048, 1);
    shape.recompute = recompute;
    const std::int64_t before = least_step_bytes(shape);
    shape.max_tokens *= 2;
    EXPECT_GT(least_step_bytes(shape), before);
  }
}

TEST(LeastBudget, CountsTheGradientsOfCopies) {
  BudgetShape shape = shape_of(768, 8, 128, 4, 2048, 1);
  const std::int64_t before = least_budget(shape);
  shape.copies = 3;
  EXPECT_GE(least_budget(shape), before + 3 * shape.chunk.gradient_bytes);
  shape.chunk.with_backward = false;
  EXPECT_LT(least_budget(shape), before);
}

TEST(LeastBudget, NeedsNoSpaceForATableOfTheStep) {
  const BudgetShape shape = shape_of(8, 64, 384, 1, 1, 1);
  EXPECT_EQ(block_table_bytes(shape.chunk, 1), 64 * (2 * 384 + 3 * 64 + 1) * 4);
  EXPECT_LT(least_step_bytes(shape), block_table_bytes(shape.chunk, 1) / 8);
}

}  // namespace
}  // namespace evenkeel
