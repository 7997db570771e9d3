// Of spilling and cutting, the choice of a step's way is held against either alone, both passes in full.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/step_memory.h"
#include "tests/budget/routed_step.h"

namespace evenkeel::testing {
namespace {

constexpr int kBlocks = 32;
constexpr std::int64_t kTokens = 1024;

double uniform(std::mt19937_64& random) {
  return std::uniform_real_distribution<double>(0, 1)(random);
}

// Squared weights of f32 or bf16, as large beside a rank's rows as they are in a real layer or more.
ChunkShape random_shape(std::mt19937_64& random, const RoutedStep& step) {
  ChunkShape shape;
  shape.num_ranks = step.ranks();
  shape.num_experts = step.experts();
  shape.top_k = step.k;
  shape.hidden = std::int64_t{256} << random() % 3;
  shape.element_bytes = random() % 2 == 0 ? 2 : 4;
  const std::int64_t matrix = shape.hidden * shape.hidden;
  shape.saved_bytes = 2 * shape.hidden * shape.element_bytes;
  shape.weight_bytes = 3 * matrix * shape.element_bytes;
  shape.forward_weight_bytes = shape.backward_weight_bytes = shape.weight_bytes;
  shape.landing_bytes = shape.recompute_weight_bytes = 2 * matrix * shape.element_bytes;
  shape.gradient_bytes = 3 * matrix * 4;
  shape.workspace = {32 << 10, 32 << 10, 32 << 10};
  shape.most_workspace = {2 << 20, 3 << 20, 3 << 20};
  return shape;
}

// A part of the assignments goes to a few experts.
RoutedStep concentrated_step(std::mt19937_64& random) {
  RoutedStep step;
  step.k = 1 << random() % 3;
  const int ranks = 2 << random() % 3;
  const int experts = ranks * (2 << random() % 4);
  step.placement = LayerPlacement::contiguous(experts, ranks);
  const double share = uniform(random);
  const auto hot = 1 + static_cast<int>(random() % 4);
  for (int rank = 0; rank < ranks; ++rank)
    for (auto& id : step.ids.emplace_back(static_cast<std::size_t>(kTokens * step.k)))
      id = static_cast<int>(random() % static_cast<unsigned>(uniform(random) < share ? hot : experts));
  return step;
}

struct Outcome {
  double seconds = 0;
  bool is_all_kept = false;  // in one chunk: memory is not short
};

// A step in so many bytes a rank, its ways compared by these costs.
struct Case {
  explicit Case(std::mt19937_64& random)
      : step(concentrated_step(random)), shape(random_shape(random, step)) {
    for (double* rate : {&options.cost.flops_per_second, &options.cost.weight_bytes_per_second,
                         &options.cost.link_bytes_per_second})
      *rate *= std::exp(2 * uniform(random) - 1);
    options.cost.overlap = uniform(random);
    options.recompute = random() % 4 == 0 ? Recompute::chunk : Recompute::automatic;
    const ChunkLoad most = largest_load(shape, kTokens);
    const ChunkLoad least = largest_load(shape, 1);
    bytes = static_cast<std::int64_t>(std::pow(0.02, 0.3 + 0.7 * uniform(random)) *
                                      static_cast<double>(backward_bytes(shape, most, most.positions_here)));
    bytes = std::max(bytes, 2 * std::max(forward_bytes(shape, least, 0), recompute_bytes(shape, least)));
  }

  // Of the forward pass, of what it kept, and of the rest in the chunks and under the plan that backward
  // chooses for it.
  Outcome carried_out(PlannerOptions::Kind planner, bool keep_plan) const {
    MemoryOptions chosen = options;
    chosen.keep_plan = keep_plan;
    StepMemory memory(shape, chosen, kTokens);
    StepPlan plan;
    make_planner({planner, 1000, 16, 1000})->plan(step.counts(), step.placement, plan);
    const StepMemory::Choice forward = memory.choose_forward(
        block_table(step, kBlocks, numbers), step.counts(), memories(step), step.placement, plan);
    if (forward.is_plain()) plan = plain_plan(step);
    const std::vector<Chunk> chunks(forward.chunks.begin(), forward.chunks.end());
    const auto rest = std::ranges::find_if(chunks, [](const Chunk& chunk) { return !chunk.kept; });
    double sum = of_pass(StepPass::forward, step, plan, chunks);
    if (rest != chunks.begin()) sum += of_pass(StepPass::backward, step, plan, {chunks.begin(), rest});
    if (rest == chunks.end()) return {sum, chunks.size() == 1};
    RoutedStep left = step;
    for (auto& ids : left.ids) ids.erase(ids.begin(), ids.begin() + rest->begin * step.k);
    const StepMemory::Choice backward = memory.choose_backward(
        block_table(left, kBlocks, numbers), left.counts(), memories(left), step.placement, plan);
    if (backward.is_plain()) plan = plain_plan(left);
    return {sum + of_pass(StepPass::backward, left, plan, backward.chunks)};
  }

  std::vector<RankMemory> memories(const RoutedStep& of) const {
    std::vector<RankMemory> all;
    for (std::int64_t tokens : of.tokens()) all.push_back({tokens, bytes, 0, bytes, bytes});
    return all;
  }
  double of_pass(StepPass pass, const RoutedStep& of, const StepPlan& plan,
                 std::span<const Chunk> chunks) const {
    BlockLoads loads;
    loads.read(block_table(of, kBlocks, numbers), of.placement, of.tokens(), of.k);
    loads.follow(plan);
    std::vector<std::int64_t> borrowed(static_cast<std::size_t>(of.ranks()));
    for (const Transfer& transfer : plan.transfers()) ++borrowed[transfer.to.offset()];
    return StepSeconds(pass, shape, options.cost, loads, kTokens, std::ranges::max(borrowed)).of_all(chunks);
  }

  RoutedStep step;
  ChunkShape shape;
  MemoryOptions options;
  std::int64_t bytes = 0;
  mutable std::vector<std::int32_t> numbers;
};

// Where memory is ample the planner's plan is the caller's wish, and is not weighed. Elsewhere chunks are
// counted before they are cut, so that a prediction may be off: of these 2,000 steps at most 4 are
// above 1.02, none above 1.10.
TEST(StepMemory, IsAlmostAlwaysPredictedToBeAsFastAsSpillingAloneAndAsPlainEpAlone) {
  int wrong = 0, faster_than_chunks = 0, faster_than_spill = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const Case problem(random);
    const Outcome both = problem.carried_out(PlannerOptions::Kind::level, false);
    if (both.is_all_kept) continue;
    const double spill = problem.carried_out(PlannerOptions::Kind::level, true).seconds;
    const double chunks = problem.carried_out(PlannerOptions::Kind::ep, false).seconds;
    ASSERT_LE(both.seconds, 1.10 * std::min(spill, chunks)) << "seed " << seed;
    wrong += both.seconds > 1.02 * std::min(spill, chunks) ? 1 : 0;
    faster_than_chunks += both.seconds < 0.98 * chunks ? 1 : 0;
    faster_than_spill += both.seconds < 0.98 * spill ? 1 : 0;
  }
  EXPECT_LE(wrong, 4);
  EXPECT_GT(faster_than_chunks, 100);
  EXPECT_GT(faster_than_spill, 100);
}

}  // namespace
}  // namespace evenkeel::testing
