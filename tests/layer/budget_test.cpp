// A budget is kept whatever the routing. It changes no output bit, and gradients only within rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "evenkeel/base/error.h"
#include "evenkeel/budget/block_table.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"
#include "tests/layer/error_bound.h"
#include "tests/layer/moe_case.h"
#include "tests/layer/same_gradients.h"

namespace evenkeel::testing {
namespace {

constexpr std::int64_t kGenerous = std::int64_t{1} << 30;

MoeCase small_case(std::uint64_t seed, DataType type,
                   std::vector<std::int64_t> tokens = {2500, 900, 0, 1600}) {
  const ExpertShape expert{16, 8, Activation::swiglu, false, type};
  return MoeCase({{16, 3, expert}, std::move(tokens), 2.0, 0.1}, seed);
}

// The least budget times factor^step.
std::int64_t grown(std::int64_t least, double factor, int step) {
  return static_cast<std::int64_t>(static_cast<double>(least) * std::pow(factor, step));
}

RunOptions options_of(std::int64_t budget, bool backward, Recompute recompute = Recompute::automatic) {
  RunOptions options;
  options.planner = {PlannerOptions::Kind::level, 1000, 8, 1000};
  options.backward = backward;
  options.budget = budget;
  options.memory.recompute = recompute;
  return options;
}

// The least budget of a layer under these options.
std::int64_t least_of(const MoeCase& problem, RunOptions options) {
  options.budget = kGenerous;
  return run(problem, options).least_budget;
}

// Compares runs under a budget with the same run without one.
class Bounded {
 public:
  explicit Bounded(const MoeCase& problem, const RunOptions& options = options_of(Arena::kNoBudget, true))
      : problem_(problem), bound_(error_bound(problem, true)), whole_(run(problem, options)) {}

  // Expects that the budget is kept, and that the numbers equal those of the run without a budget.
  MoeResult expect_kept(const RunOptions& options) const {
    const MoeResult bounded = run(problem_, options);
    for (std::int64_t peak : bounded.peak_bytes)
      EXPECT_TRUE(options.budget == Arena::kNoBudget || peak <= options.budget) << peak;
    EXPECT_EQ(bounded.output, whole_.output);
    expect_same_gradients(bounded, whole_, bound_);
    return bounded;
  }

 private:
  const MoeCase& problem_;
  DenseResult bound_;
  MoeResult whole_;
};

TEST(Budget, OneByteBelowTheLeastIsRefusedAtConstructionWithTheLeast) {
  const MoeCase problem = small_case(1, DataType::f32);
  const std::int64_t least = least_of(problem, options_of(kGenerous, true));
  try {
    run(problem, options_of(least - 1, true));
    FAIL() << "was accepted";
  } catch (const BudgetTooSmall& error) {
    EXPECT_EQ(std::get<std::int64_t>(error.data()[0].value), least - 1);
    EXPECT_EQ(std::get<std::int64_t>(error.data()[1].value), least);
  }
}

// The least budget, computed without constructing a layer.
std::int64_t foretold(const MoeCase& problem, const RunOptions& options) {
  const MoeShape& shape = problem.shape().moe;
  MoeOptions of_layer;
  of_layer.max_tokens = std::ranges::max(problem.shape().tokens);
  of_layer.with_backward = options.backward;
  of_layer.cpu().memory = options.memory;
  const LayerPlacement placement = options.homes.empty()
                                       ? LayerPlacement::contiguous(shape.num_experts, problem.ranks())
                                       : LayerPlacement(options.homes, problem.ranks());
  const auto experts = make_cpu_expert_ffn(shape.expert, options.backward);
  return least_budget(budget_shape(shape, placement, *experts, of_layer));
}

TEST(Budget, LeastIsKnownWithoutALayer) {
  for (DataType type : {DataType::f32, DataType::bf16})
    for (bool backward : {false, true})
      for (bool copies : {false, true}) {
        const MoeCase problem({{4, 2, {16, 8, Activation::swiglu, false, type}}, {30, 50, 0}, 1.0, 0.1}, 6);
        RunOptions options = options_of(kGenerous, backward);
        if (copies) options.homes = {{0, 1, 2}, {1, 0}, {2, 0}, {1}};
        EXPECT_EQ(run(problem, options).least_budget, foretold(problem, options));
      }
}

TEST(Budget, OfEverySizeIsKeptUnderEveryPolicyAndAnAmpleOneMeansOneChunk) {
  const MoeCase problem = small_case(2, DataType::f32, {1300, 700, 0, 900});
  const Bounded bounded(problem);
  for (Recompute recompute : {Recompute::automatic, Recompute::chunk, Recompute::whole, Recompute::none}) {
    const MoeResult ample = run(problem, options_of(kGenerous, true, recompute));
    EXPECT_EQ(ample.chunks, 1u);
    for (int step = 0; step < 12; step += kUnderThreadSanitizer ? 4 : 1) {
      const std::int64_t budget = grown(ample.least_budget, 1.5, step);
      const MoeResult tight = bounded.expect_kept(options_of(budget, true, recompute));
      const bool cuts = recompute == Recompute::automatic || recompute == Recompute::chunk;
      if (step == 0 && cuts) {
        EXPECT_GT(tight.chunks, 1u);
      }
    }
  }
}

// Borrowed weights and their gradients take most of the budget.
TEST(Budget, ThatWeightsAlmostFillChangesNoNumber) {
  int borrowing = 0;
  for (const bool copies : {false, true})
    for (DataType type : {DataType::f32, DataType::bf16}) {
      const ExpertShape expert{96, 128, Activation::swiglu, false, type};
      const MoeCase problem({{8, 2, expert}, {60, 24, 0, 45}, 3.0, 0.1}, 5);
      RunOptions options = options_of(Arena::kNoBudget, true, Recompute::chunk);
      options.memory.keep_plan = true;
      for (int e = 0; copies && e < 8; ++e)
        options.homes.push_back(e % 3 == 0 ? std::vector{e % 4, (e + 1) % 4} : std::vector{e % 4});
      const Bounded bounded(problem, options);
      const std::int64_t gradient = 3 * 96 * 128 * std::int64_t{sizeof(float)};
      const std::int64_t least = least_of(problem, options);
      for (int step = 0; step < 56; step += kUnderThreadSanitizer ? 16 : 1) {
        options.budget = least + step * gradient / 8;
        if (bounded.expect_kept(options).transfers > 0) ++borrowing;
      }
    }
  EXPECT_GT(borrowing, kUnderThreadSanitizer ? 4 : 4 * 36);
}

// With many experts, even the counts of one block may take more memory than a step's rows.
TEST(Budget, AtTheLeastNeedsNoSpaceForATableOfTheStep) {
  for (const bool copies : {false, true}) {
    const ExpertShape expert{16, 8, Activation::swiglu, false, DataType::f32};
    const MoeCase problem({{192, 3, expert}, {150, 40, 0, 97}, 2.0, 0.1}, 7);
    RunOptions options = options_of(Arena::kNoBudget, true);
    for (int e = 0; copies && e < 192; ++e)
      options.homes.push_back(e == 0 ? std::vector{0, 1} : std::vector{e % 4});
    const Bounded bounded(problem, options);
    const std::int64_t least = least_of(problem, options);
    const std::int64_t table = BlockTable::count(4, 192, 1) * std::int64_t{sizeof(std::int32_t)};
    ASSERT_LT(least - 2 * 150 * 3 * 4 - (copies ? 3 * 16 * 8 * std::int64_t{sizeof(float)} : 0), table);
    for (int step = 0; step < 8; ++step) {
      options.budget = least + step * table / 4;
      const MoeResult tight = bounded.expect_kept(options);
      EXPECT_TRUE(step > 0 || tight.chunks > 1u);
    }
  }
}

// Equal parts do not end at block boundaries, so ranks do not know in advance exactly what a part contains.
TEST(Budget, IsKeptUnderARuleWhosePartsAreNoBlocks) {
  const MoeCase problem = small_case(8, DataType::bf16, {900, 300, 0, 700});
  RunOptions options = options_of(kGenerous, true);
  options.planner.min_segment = 1;
  const std::int64_t least = least_of(problem, options);
  for (std::int64_t count : {3, 7, 45})
    for (int step = 0; step < 12; step += kUnderThreadSanitizer ? 4 : 1) {
      options.budget = grown(least, 1.5, step);
      options.memory.rule = {ChunkRule::Kind::equal, count, {}};
      for (std::int64_t peak : run(problem, options).peak_bytes) EXPECT_LE(peak, options.budget);
    }
}

TEST(ChunkRule, IsFollowedWhereItFitsAndChangesNoNumber) {
  const MoeCase problem = small_case(4, DataType::f32);
  const Bounded bounded(problem);
  for (std::int64_t budget : {Arena::kNoBudget, kGenerous})
    for (Recompute recompute : {Recompute::automatic, Recompute::chunk, Recompute::whole, Recompute::none})
      for (std::int64_t count : {1, 3, 8, 50}) {
        RunOptions options = options_of(budget, true, recompute);
        options.memory.rule = {ChunkRule::Kind::equal, count, {}};
        EXPECT_EQ(bounded.expect_kept(options).chunks, static_cast<std::size_t>(count));
      }
}

TEST(ChunkRule, GivesWayToTheBudget) {
  const MoeCase problem = small_case(4, DataType::f32);
  const std::int64_t least = least_of(problem, options_of(kGenerous, true));
  RunOptions options = options_of(least, true);
  options.memory.rule = {ChunkRule::Kind::equal, 1, {}};
  const MoeResult tight = run(problem, options);
  EXPECT_GT(tight.chunks, 1u);
  for (std::int64_t peak : tight.peak_bytes) EXPECT_LE(peak, least);
}

// As in MemFine's tuning, a smaller budget gives more chunks. The number of chunks is one of the bins, as
// long as one of the bins is large enough.
TEST(ChunkRule, OfMactTakesTheLeastBinThatIsEnough) {
  const MoeCase problem = small_case(5, DataType::f32);
  const std::int64_t least = least_of(problem, options_of(kGenerous, true));
  std::vector<std::size_t> chunks;
  for (std::int64_t times : {2, 4, 8, 64}) {
    RunOptions options = options_of(times * least, true, Recompute::chunk);
    options.memory.rule = {ChunkRule::Kind::mact, 1, {1, 2, 4, 8, 16}};
    chunks.push_back(run(problem, options).chunks);
  }
  EXPECT_TRUE(std::ranges::is_sorted(chunks, std::greater<>())) << ::testing::PrintToString(chunks);
  EXPECT_GT(chunks.front(), 1U);
  EXPECT_EQ(chunks.back(), 1U);
}

}  // namespace
}  // namespace evenkeel::testing
