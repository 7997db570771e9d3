// The least budget of CPU layers, compared with a lower bound.
#include "evenkeel/budget/least_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"

namespace evenkeel {
namespace {

// The number of elements that the products read for one row at a time, if the products run one after the
// other over whole rows.
struct RowOperands {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};
RowOperands operands_of(const ExpertShape& expert) {
  return {expert.intermediate, expert.intermediate + expert.gate_up_rows()};
}

// How many four-byte numbers say where rows and results go. Per rank: the rows and positions received from it
// and sent to it. Per position: the input row and the output row. Per choice of the rank's tokens: the place
// of its result. Backward adds the router weight of each position and the gradient of that weight.
struct PassNumbers {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};
PassNumbers numbers_of(const ChunkShape& chunk) {
  const std::int64_t positions = std::int64_t{chunk.num_ranks} * chunk.top_k;
  const std::int64_t forward = 4 * chunk.num_ranks + 2 * positions + chunk.top_k;
  return {forward, forward + 2 * positions};
}

// A chunk has one token of each rank, and one rank may compute all of them. In forward that rank holds the
// others' rows and k results per token, also for its own token if that stays. In backward it holds those
// rows, their incoming gradients, and the f32 gradients that it computes for them. If its own token stays, it
// also holds that token's gradient; otherwise, it holds memory for the gradients that return to it. With f32,
// the gradient of its own token is added up in the caller's tensor. Each state that waits for backward holds
// its choices.
std::int64_t lower_bound(const BudgetShape& shape, const RowOperands& operands,
                         const PassNumbers& numbers = {}) {
  const ChunkShape& chunk = shape.chunk;
  const std::int64_t tokens = chunk.num_ranks;
  const std::int64_t row = chunk.row_bytes();
  const std::int64_t forward = (tokens - 1 + tokens * chunk.top_k) * row +
                               operands.forward * chunk.element_bytes + numbers.forward * 4;
  if (!chunk.with_backward) return forward;
  const std::int64_t states = shape.states_in_flight * shape.max_tokens * chunk.top_k * 8;
  const std::int64_t others = (tokens - 1) * chunk.hidden * 4;
  const std::int64_t home = std::min<std::int64_t>(chunk.top_k, tokens - 1) * row;
  const std::int64_t gradients = chunk.element_bytes == 4
                                     ? others + home
                                     : std::max(others + chunk.hidden * 4, (tokens - 1) * row + home);
  const std::int64_t backward =
      2 * (tokens - 1) * row + gradients + operands.backward * chunk.element_bytes + numbers.backward * 4;
  return std::max(forward, backward) + states;
}

BudgetShape shape_of(const ExpertShape& expert, const ExpertFfn& ffn, int ranks, int top_k, bool backward) {
  BudgetShape shape;
  shape.chunk = chunk_shape({128, top_k, expert}, ranks, ffn, backward);
  shape.max_tokens = 2048;
  shape.home_experts = 128 / ranks;
  return shape;
}

struct Width {
  int hidden, intermediate;
};
// Calls check(expert, shape) for layers of these widths, in both types, with and without backward.
template <class Check>
void for_each_layer(std::initializer_list<Width> widths, const Check& check) {
  for (DataType type : {DataType::f32, DataType::bf16})
    for (const auto& [hidden, intermediate] : widths) {
      const ExpertShape expert{hidden, intermediate, Activation::swiglu, false, type};
      const auto ffn = make_cpu_expert_ffn(expert, true);
      for (bool backward : {false, true})
        for (int ranks : {2, 4, 8, 16, 64})
          for (int top_k : {1, 2, 4, 8}) check(expert, shape_of(expert, *ffn, ranks, top_k, backward));
    }
}

// Expects the least budget to be at least `bound` and at most 1/`share` above it.
void expect_within(const BudgetShape& shape, std::int64_t bound, std::int64_t share) {
  EXPECT_GE(least_budget(shape), bound);
  EXPECT_LE(least_budget(shape), bound + bound / share)
      << "hidden " << shape.chunk.hidden << " of " << shape.chunk.element_bytes << " bytes, "
      << shape.chunk.num_ranks << " ranks, top-" << shape.chunk.top_k << ", " << shape.max_tokens << " tokens"
      << (shape.chunk.with_backward ? ", backward" : "");
}

TEST(LeastBudgetOfALayer,
     IsWithinATwentiethOfWhatRowsAndOneRowsProductsNeedAndATenthOfWhatManyRowsNeedAlone) {
  for_each_layer({{768, 768}, {1536, 768}, {2048, 1024}, {1024, 512}},
                 [](const ExpertShape& expert, const BudgetShape& shape) {
                   // The bound counts everything except the tables of a chunk.
                   expect_within(shape, lower_bound(shape, operands_of(expert)), 20);
                   const bool many_rows = shape.chunk.num_ranks >= 8 && shape.chunk.top_k >= 4;
                   if (shape.chunk.with_backward && many_rows)
                     expect_within(shape, lower_bound(shape, {}), 10);
                 });
}

// Narrow rows are small compared with the counts of a step. Under the least budget, these counts need not be
// gathered in blocks. Index numbers take a larger share.
TEST(LeastBudgetOfALayer, OfNarrowRowsIsWithinATenth) {
  for_each_layer({{128, 64}, {128, 128}, {256, 256}, {512, 256}},
                 [](const ExpertShape& expert, BudgetShape shape) {
                   const PassNumbers numbers = expert.hidden < 256 ? numbers_of(shape.chunk) : PassNumbers{};
                   for (std::int64_t max_tokens : {1, 64, 2048}) {
                     shape.max_tokens = max_tokens;
                     expect_within(shape, lower_bound(shape, operands_of(expert), numbers), 10);
                   }
                 });
}

// The workspace of the fastest products would be larger than everything else together.
TEST(LeastBudgetOfALayer, HasNoSpaceForProductsOfManyRows) {
  const ExpertShape expert{768, 768, Activation::swiglu, false, DataType::f32};
  const auto ffn = make_cpu_expert_ffn(expert, true);
  const BudgetShape shape = shape_of(expert, *ffn, 8, 4, true);
  EXPECT_LT(least_budget(shape), ffn->workspace_bytes(Pass::forward) / 4);
}

TEST(Workspaces, AreWidenedByAQuarterOfWhatIsSpareUpToTheMost) {
  ChunkShape least;
  least.workspace = {100, 200, 300};
  least.most_workspace = {150, 1000, 300};
  const auto expect = [&](std::int64_t spare, Workspaces expected) {
    const Workspaces& wide = with_workspaces(least, spare).workspace;
    EXPECT_EQ(wide.forward, expected.forward) << spare;
    EXPECT_EQ(wide.backward, expected.backward) << spare;
    EXPECT_EQ(wide.recompute, expected.recompute) << spare;
  };
  expect(-1, {100, 200, 300});
  expect(0, {100, 200, 300});
  expect(80, {120, 220, 300});
  expect(400, {150, 300, 300});
  expect(std::int64_t{1} << 60, {150, 1000, 300});
}

}  // namespace
}  // namespace evenkeel
