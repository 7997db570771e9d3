// The arena bytes of a step are predicted before it runs, from the table that ranks gather before they plan.
// tests/sim/replay_test.cpp shows that these bytes are known exactly once rows are dealt.
#include <gtest/gtest.h>

#include <algorithm>

#include "evenkeel/budget/least_budget.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"
#include "evenkeel/sim/peaks.h"
#include "tests/budget/routed_step.h"
#include "tests/layer/rank_layer.h"

namespace evenkeel::testing {
namespace {

struct StepSetup {
  MoeCase problem;
  MoeOptions options;
  std::int64_t budget = Arena::kNoBudget;
};

struct Measured {
  StepPlan plan;
  std::vector<Chunk> chunks;
  std::vector<Peaks> peaks;  // by rank
};

Measured measure(const StepSetup& setup) {
  Measured measured;
  measured.peaks.resize(static_cast<std::size_t>(setup.problem.ranks()));
  run_ranks(setup.problem.ranks(), [&](Communicator& comm) {
    Arena arena(Device::cpu(), setup.budget);
    RankLayer rank(setup.problem, comm, arena, setup.options);
    Peaks& peaks = measured.peaks[comm.rank().offset()];
    ForwardState state = rank.forward();
    peaks.forward = arena.peak_bytes();
    if (comm.rank() == RankId(0)) {
      measured.plan = state.plan();
      measured.chunks.assign(state.chunks().begin(), state.chunks().end());
    }
    if (!setup.options.with_backward) return;
    arena.reset_peak();
    rank.backward(std::move(state));
    peaks.backward = arena.peak_bytes();
  });
  return measured;
}

// Predicts one step's bytes from its plan, its chunks and the table of blocks; chunks end at block
// boundaries. If a token goes to a rank for a split expert and for another expert, the table does not show
// that they share a row, so two rows are counted.
class Prediction {
 public:
  Prediction(const StepSetup& setup, const Measured& measured)
      : setup_(setup), plan_(measured.plan), chunks_(measured.chunks), step_(step_of(setup.problem)) {
    const MoeShape& moe = setup.problem.shape().moe;
    const bool backward = setup.options.with_backward;
    memory_.shape.chunk =
        chunk_shape(moe, setup.problem.ranks(), *make_cpu_expert_ffn(moe.expert, backward), backward);
    memory_.shape.max_tokens = std::ranges::max(setup.problem.shape().tokens);
    memory_.shape.home_experts = step_.placement.most_natives();
    memory_.options = setup.options.cpu().memory;
    memory_.shape.recompute = memory_.options.recompute;
    memory_.budget = setup.budget;
  }

  std::vector<Peaks> peaks() const {
    const auto loads = loads_of(step_, chunks_);
    std::vector<RankLoads> recomputed;
    if (const auto begin = std::ranges::find(chunks_, false, &Chunk::kept); begin != chunks_.end())
      recomputed = recompute_loads(*begin);
    const int blocks = kStepBlocks;
    const ChunkShape shape =
        with_workspaces(memory_.shape.chunk, setup_.budget - least_budget(memory_.shape));
    return peaks_of(memory_, {.homes = step_.placement,
                              .plan = plan_,
                              .recompute_plan = plan_,
                              .workspace = shape.workspace,
                              .chunks = chunks_,
                              .loads = loads,
                              .recompute_loads = recomputed,
                              .blocks = blocks,
                              .recompute_blocks = std::span(&blocks, 1)});
  }

 private:
  static RoutedStep step_of(const MoeCase& problem) {
    const MoeShape& moe = problem.shape().moe;
    RoutedStep step{moe.top_k, LayerPlacement::contiguous(moe.num_experts, problem.ranks()), {}};
    for (int rank = 0; rank < problem.ranks(); ++rank) {
      const TopK mine = problem.top_k_of(rank);
      step.ids.emplace_back(mine.experts.begin(), mine.experts.end());
    }
    return step;
  }

  std::vector<RankLoads> loads_of(const RoutedStep& step, const std::vector<Chunk>& chunks) const {
    std::vector<std::int32_t> numbers;
    BlockLoads known;
    known.read(block_table(step, kStepBlocks, numbers), step.placement, step.tokens(), step.k);
    known.follow(plan_);
    std::vector<RankLoads> loads;
    for (const Chunk& chunk : chunks) {
      RankLoads& of_ranks = loads.emplace_back();
      const auto block = [&](std::int64_t unit) {
        return static_cast<int>(unit * kStepBlocks / memory_.units());
      };
      for (RankId rank : indices<RankId>(step.ranks()))
        of_ranks.push_back(known.load(rank, block(chunk.begin), block(chunk.end)));
    }
    return loads;
  }

  // The loads of the tokens that are recomputed, in as many equal parts as the chunk rule says.
  std::vector<RankLoads> recompute_loads(const Chunk& first) const {
    RoutedStep rest = step_;
    for (auto& ids : rest.ids) {
      const auto tokens = static_cast<std::int64_t>(ids.size()) / rest.k;
      ids.erase(ids.begin(), ids.begin() + first.first_token(tokens, memory_.units()) * rest.k);
    }
    const ChunkRule& rule = memory_.options.rule;
    const std::int64_t count = rule.kind == ChunkRule::Kind::equal ? rule.count : 1, units = memory_.units();
    std::vector<Chunk> parts;
    for (std::int64_t i = 0; i < count; ++i) parts.push_back({units * i / count, units * (i + 1) / count});
    return loads_of(rest, parts);
  }

  const StepSetup& setup_;
  const StepPlan& plan_;
  const std::vector<Chunk>& chunks_;
  RoutedStep step_;
  LayerMemory memory_;
};

MoeCase case_of(int ranks, const ExpertShape& expert, std::uint64_t seed) {
  std::vector<std::int64_t> tokens;
  for (int rank = 0; rank < ranks; ++rank) tokens.push_back(rank % 3 == 2 ? 90 : 800 - 37 * rank);
  return MoeCase({{16, 3, expert}, tokens, 1.5, 0.05}, seed);
}

MoeOptions options_of(PlannerOptions::Kind kind, Recompute recompute, std::int64_t chunks) {
  MoeOptions options;
  options.planner = {kind, 1000, 8, 1000};
  options.cpu().memory.recompute = recompute;
  if (chunks > 1) options.cpu().memory.rule = {ChunkRule::Kind::equal, chunks, {}};
  // Transfers cost nothing, so that backward never silently drops a spilled plan.
  options.cpu().memory.cost.link_bytes_per_second = 1e30;
  options.cpu().memory.cost.weight_bytes_per_second = 1e30;
  return options;
}

// Expects predictions that are at least the measured peaks, and above them by at most the share `slack`.
void expect_predicted(const std::vector<Peaks>& measured, const std::vector<Peaks>& predicted,
                      double slack = 0) {
  for (std::size_t rank = 0; rank < measured.size(); ++rank)
    for (auto peak : {&Peaks::forward, &Peaks::backward}) {
      const std::int64_t real = measured[rank].*peak;
      const std::int64_t said = predicted[rank].*peak;
      EXPECT_LE(real, said) << "rank " << rank << (peak == &Peaks::forward ? ", forward" : ", backward");
      EXPECT_GE(static_cast<double>(real) * (1 + slack), static_cast<double>(said))
          << "rank " << rank << (peak == &Peaks::forward ? ", forward" : ", backward");
    }
}

using Kind = PlannerOptions::Kind;

// Shapes, activations and types that tests/sim/replay_test.cpp does not cover.
constexpr ExpertShape kOtherExperts[] = {{48, 120, Activation::clamped_swiglu, true, DataType::f32},
                                         {160, 24, Activation::clamped_swiglu, true, DataType::bf16},
                                         {40, 72, Activation::gelu, false, DataType::bf16},
                                         {96, 16, Activation::gelu, true, DataType::f32}};

class PredictedOf : public ::testing::TestWithParam<std::tuple<ExpertShape, Kind>> {
 protected:
  // Runs steps on three and on six ranks, each in one chunk and in `chunks`.
  void expect_steps_predicted(std::initializer_list<Recompute> policies, std::int64_t chunks,
                              std::uint64_t seed) const {
    const auto [expert, kind] = GetParam();
    const auto products = make_cpu_expert_ffn(expert, true);
    for (int ranks = 3; ranks <= (kUnderThreadSanitizer ? 3 : 6); ranks += 3)
      for (Recompute recompute : policies)
        for (std::int64_t count : {std::int64_t{1}, chunks}) {
          const StepSetup setup{case_of(ranks, expert, seed), options_of(kind, recompute, count),
                                std::int64_t{1} << 28};  // so that steps are counted by blocks
          const Measured measured = measure(setup);
          SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(count) + " chunks");
          expect_predicted(measured.peaks, Prediction(setup, measured).peaks(),
                           measured.plan.spilled() ? 0.65 : 0.02);
        }
  }
};

TEST_P(PredictedOf, OtherExpertsThePeakIsKnownBeforeAnythingIsDealt) {
  expect_steps_predicted({Recompute::none, Recompute::whole, Recompute::chunk}, 4, 8);
}

INSTANTIATE_TEST_SUITE_P(Steps, PredictedOf,
                         ::testing::Combine(::testing::ValuesIn(kOtherExperts),
                                            ::testing::Values(Kind::ep, Kind::least_loaded, Kind::level)));

// With many experts, a token seldom goes twice to the same rank, so the prediction is closer.
TEST(PredictedOfManyExperts, ThePeakIsKnownBeforeAnythingIsDealtAndNearer) {
  const ExpertShape expert{64, 64, Activation::swiglu, false, DataType::f32};
  const std::vector<std::int64_t> tokens(8, 500);
  const auto products = make_cpu_expert_ffn(expert, true);
  for (const Recompute recompute : {Recompute::none, Recompute::chunk}) {
    const StepSetup setup{MoeCase({{128, 4, expert}, tokens, 1.5, 0.0}, 9),
                          options_of(Kind::level, recompute, 1), std::int64_t{1} << 28};
    const Measured measured = measure(setup);
    ASSERT_TRUE(measured.plan.spilled());
    expect_predicted(measured.peaks, Prediction(setup, measured).peaks(), 0.15);
  }
}

}  // namespace
}  // namespace evenkeel::testing
