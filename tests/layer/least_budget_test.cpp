// The least budget of layers with the CPU's products, beside what nobody can do without.
#include "evenkeel/memory/least_budget.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"

namespace evenkeel {
namespace {

// Chunks have a token of each rank, and all of them may go to one: forward it holds the others' rows and k
// results a token, backward as many rows, their gradients and, in f32, those that it computes. Whoever waits
// for backward holds the choices. Products are taken to need nothing.
std::int64_t lower_bound(const BudgetShape& shape) {
  const ChunkShape& chunk = shape.chunk;
  const std::int64_t tokens = chunk.num_ranks;
  const std::int64_t forward = (tokens - 1 + tokens * chunk.top_k) * chunk.row_bytes();
  if (!chunk.with_backward) return forward;
  const std::int64_t backward = 2 * (tokens - 1) * chunk.row_bytes() + tokens * chunk.hidden * 4;
  return std::max(forward, backward) + shape.states_in_flight * shape.max_tokens * chunk.top_k * 8;
}

BudgetShape shape_of(const ExpertShape& expert, const ExpertFfn& ffn, int ranks, int top_k, bool backward) {
  BudgetShape shape;
  shape.chunk = chunk_shape({128, top_k, expert}, ranks, ffn, backward);
  shape.max_tokens = 2048;
  return shape;
}

// Whether these products give a row alone the bits that it has among others; else tiles are of more rows.
bool has_tiles_of_a_row(const ExpertFfn& ffn) {
  const ExpertShape& expert = ffn.shape();
  const std::int64_t row = (2 * expert.hidden + 2 * expert.intermediate) * bytes_of(expert.type);
  constexpr std::int64_t kBlocks = 8 << 10;
  return ffn.least_workspace_bytes(Pass::forward) <= row + kBlocks;
}

TEST(LeastBudgetOfALayer, IsWithinATenthOfWhatNobodyCanDoWithout) {
  for (DataType type : {DataType::f32, DataType::bf16})
    for (const std::int64_t hidden : {768, 1536}) {
      const ExpertShape expert{hidden, 768, Activation::swiglu, false, type};
      const auto ffn = make_cpu_expert_ffn(expert, true);
      if (!has_tiles_of_a_row(*ffn)) continue;
      for (int ranks : {8, 16, 64})
        for (int top_k : {4, 8}) {
          const BudgetShape shape = shape_of(expert, *ffn, ranks, top_k, true);
          const auto ratio =
              static_cast<double>(least_budget(shape)) / static_cast<double>(lower_bound(shape));
          EXPECT_GE(ratio, 1.0);
          EXPECT_LE(ratio, 1.1) << name_of(type) << ", hidden " << hidden << ", " << ranks << " ranks, top-"
                                << top_k;
        }
    }
}

// The products that are fastest would take more than all else together.
TEST(LeastBudgetOfALayer, HasNoRoomForProductsOfManyRows) {
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
