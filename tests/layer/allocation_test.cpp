// After warm-up steps, a layer allocates nothing on its rank's thread, whatever the routing. Only oneDNN
// allocates, for the arguments of its calls.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/layer/step_timeline.h"
#include "tests/layer/heap_use.h"
#include "tests/layer/rank_layer.h"
#include "tests/layer/wrapped_experts.h"

namespace evenkeel::testing {
namespace {

// Allocations inside expert calls, which are oneDNN's and not the layer's.
std::atomic<std::int64_t> allocations_apart = 0;

std::shared_ptr<const ExpertFfn> counted_apart(const ExpertShape& shape) {
  const auto apart = [](const char*, const auto& call) {
    const std::int64_t before = heap_use().allocations;
    call();
    allocations_apart += heap_use().allocations - before;
    heap_use().allocations = before;
  };
  return std::make_shared<WrappedExperts<decltype(apart)>>(shape, apart);
}

// Cases of one shape with different routings: even, hot, very hot, sparse.
std::vector<MoeCase> routings(const ExpertShape& expert) {
  std::vector<MoeCase> cases;
  for (std::uint64_t seed = 0; seed < 48; ++seed)
    cases.emplace_back(CaseShape{{20, 3, expert},
                                 {90, 90, 90, 90, 90, 90},
                                 static_cast<double>(seed % 4) * 1.5,
                                 seed % 3 == 0 ? 0.4 : 0.0},
                       seed);
  return cases;
}

std::int64_t least_budget(const MoeCase& problem, const MoeOptions& options) {
  std::int64_t least = 0;
  run_ranks(6, [&](Communicator& comm) {
    Arena arena(Device::cpu());
    RankLayer rank(problem, comm, arena, options);
    if (comm.rank() == RankId(0)) least = rank.layer().least_budget();
  });
  return least;
}

// The last parameter is the budget in percent of the least budget; 0 means no budget.
class Allocation
    : public ::testing::TestWithParam<std::tuple<PlannerOptions::Kind, DataType, bool, int, int>> {};

TEST_P(Allocation, NothingIsAllocatedByWarmStepsOfChangingRoutings) {
  const auto [kind, type, watched, chunks, budget] = GetParam();
  const ExpertShape expert{32, 24, Activation::clamped_swiglu, true, type};
  const std::vector<MoeCase> cases = routings(expert);
  allocations_apart = 0;
  std::vector<std::int64_t> allocations(6, -1);
  MoeOptions same;
  same.planner = {kind, 1000, 2, 0};
  same.cpu().experts = counted_apart(expert);
  if (chunks > 1) {
    same.cpu().memory.recompute = Recompute::chunk;
    same.cpu().memory.rule = {ChunkRule::Kind::equal, chunks, {}};
    same.cpu().memory.keep_plan = true;  // so that warm-up steps lend weights
  }
  const std::int64_t bytes = budget > 0 ? least_budget(cases.front(), same) * budget / 100 : Arena::kNoBudget;
  run_ranks(6, [&](Communicator& comm) {
    Arena arena(Device::cpu(), bytes);
    std::optional<StepTimeline> timeline;  // a timeline must not allocate either
    if (watched) timeline.emplace(arena);
    MoeOptions options = same;
    if (watched) options.cpu().on_phase = [&](const TimedPhase& phase) { timeline->add(phase); };
    RankLayer rank(cases.front(), comm, arena, options);
    const auto step = [&](std::size_t i) {
      TopK top_k = cases[i].top_k_of(comm.rank().value());
      const std::size_t fewer = i * 7 % 60;  // the number of tokens changes as well
      top_k.tokens -= static_cast<std::int64_t>(fewer);
      top_k.experts = top_k.experts.first(static_cast<std::size_t>(top_k.tokens) * 3);
      top_k.weights = top_k.weights.first(top_k.experts.size());
      if (watched) timeline->restart();
      rank.step(top_k);
    };
    for (std::size_t i = 0; i < 24; ++i) step(i);
    rank.layer().set_planner(options.planner);  // allocates all that planning needs
    {
      const HeapCounting counting;
      for (std::size_t i = 24; i < 48; ++i) step(i);
    }
    allocations[comm.rank().offset()] = heap_use().allocations;
    if (watched) {
      EXPECT_GT(timeline->record().in_use.size(), 1u);
      EXPECT_GT(timeline->record().phases.size(), 1u);
    }
  });
  for (std::int64_t count : allocations) EXPECT_EQ(count, 0);
  EXPECT_GT(allocations_apart, 0) << "allocations are not counted";
  RecordProperty("allocations_in_products_a_rank_and_step", std::to_string(allocations_apart / 24 / 6));
}

INSTANTIATE_TEST_SUITE_P(PlannersTypesWatched, Allocation,
                         ::testing::Combine(::testing::Values(PlannerOptions::Kind::ep,
                                                              PlannerOptions::Kind::least_loaded,
                                                              PlannerOptions::Kind::level),
                                            ::testing::Values(DataType::f32, DataType::bf16),
                                            ::testing::Bool(), ::testing::Values(1), ::testing::Values(0)));
INSTANTIATE_TEST_SUITE_P(InChunks, Allocation,
                         ::testing::Combine(::testing::Values(PlannerOptions::Kind::level),
                                            ::testing::Values(DataType::f32, DataType::bf16),
                                            ::testing::Values(true), ::testing::Values(3),
                                            ::testing::Values(0)));
INSTANTIATE_TEST_SUITE_P(Budgets, Allocation,
                         ::testing::Combine(::testing::Values(PlannerOptions::Kind::level),
                                            ::testing::Values(DataType::f32, DataType::bf16),
                                            ::testing::Values(false), ::testing::Values(1, 3),
                                            ::testing::Values(100, 150, 300, 1000)));

}  // namespace
}  // namespace evenkeel::testing
