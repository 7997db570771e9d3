// The GPU layer: the properties tested for the CPU layer, and a captured step replayed with changing
// routings.
#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/layer/cuda/on_gpu.h"
#include "tests/layer/cuda/cuda_case.h"
#include "tests/support/gpu.h"

namespace evenkeel::testing {
namespace {

using Kind = PlannerOptions::Kind;
constexpr Kind kKinds[] = {Kind::ep, Kind::least_loaded, Kind::level};

// The least budget named by the error.
std::int64_t least_of(const BudgetTooSmall& error) {
  for (const Error::Field& field : error.data())
    if (field.name == "least") return std::get<std::int64_t>(field.value);
  return -1;
}

class CudaLayer : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

ExpertShape bf16_expert(std::int64_t hidden, std::int64_t intermediate,
                        Activation activation = Activation::swiglu) {
  return {hidden, intermediate, activation, activation == Activation::clamped_swiglu, DataType::bf16};
}

std::string name_of_case(int round, Kind kind) {
  return "round " + std::to_string(round) + ", planner " + std::to_string(static_cast<int>(kind));
}

TEST_F(CudaLayer, OutputAndGradientsAreDenseOnesForEveryPlanner) {
  std::mt19937_64 random(7);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (Activation activation : {Activation::swiglu, Activation::clamped_swiglu, Activation::gelu})
    for (int round = 0; round < 3; ++round) {
      const ExpertShape expert = bf16_expert(8 * between(4, 20), 8 * between(2, 16), activation);
      std::vector<std::int64_t> tokens(static_cast<std::size_t>(between(2, 6)));
      for (auto& count : tokens) count = between(0, 400);
      const MoeCase problem({{between(3, 20), between(1, 5), expert}, tokens, 2.0, 0.05}, random());
      for (Kind kind : kKinds) {
        const CudaRun run =
            run_on_gpu(problem, {.planner = {kind, 1000, between(1, 20), 0}, .backward = true});
        expect_dense_layer(Dense(problem), run.numbers, name_of_case(round, kind));
      }
    }
}

TEST_F(CudaLayer, EveryOrdinaryStepIsExact) {
  for (const Ordinary& each : ordinary_steps(bf16_expert(48, 40))) {
    const MoeCase problem(each.shape, 99);
    for (Kind kind : kKinds) {
      const CudaRun run = run_on_gpu(problem, {.planner = {kind, 1000, 4, 0}, .backward = true});
      expect_dense_layer(Dense(problem), run.numbers, each.name);
    }
  }
}

TEST_F(CudaLayer, OutputBitsAreTheSameForEveryPlannerRankCountAndChunkCount) {
  const MoeCase one({{24, 4, bf16_expert(136, 104)}, {900}, 3.0, 0.02}, 5);
  const CudaRun expected = run_on_gpu(one, {});
  int cut = 0;
  for (int ranks : {1, 2, 3, 8}) {
    const MoeCase problem = one.dealt_to(ranks);
    for (Kind kind : kKinds) {
      const CudaRun whole = run_on_gpu(problem, {.planner = {kind, 1000, 8, 0}});
      EXPECT_TRUE(whole.numbers.output == expected.numbers.output)
          << ranks << " ranks, " << name_of_case(0, kind);
      for (std::int64_t part : {2, 3, 6}) {
        const CudaRun tight = run_on_gpu(problem, {.planner = {kind, 1000, 8, 0},
                                                   .budget = whole.peak_bytes / part,
                                                   .borrow_slots = 2,
                                                   .rounds = 1});
        EXPECT_TRUE(tight.numbers.output == expected.numbers.output)
            << ranks << " ranks, 1/" << part << " of the bytes, " << tight.report.chunks << " chunks";
        EXPECT_LE(tight.peak_bytes, whole.peak_bytes / part);
        cut += tight.report.chunks > 1;
      }
    }
  }
  EXPECT_GT(cut, 6);
}

TEST_F(CudaLayer, GradientsAreDenseOnesInChunksAndWithFewPlaces) {
  const MoeCase problem({{16, 3, bf16_expert(64, 48)}, {300, 200, 100, 250}, 4.0, 0.02}, 12);
  for (Kind kind : kKinds) {
    const CudaRun whole = run_on_gpu(problem, {.planner = {kind, 1000, 4, 0}, .backward = true});
    for (int rounds : {1, 3})
      for (std::int64_t part : {1, 3}) {
        const CudaRun run = run_on_gpu(problem, {.planner = {kind, 1000, 4, 0},
                                                 .backward = true,
                                                 .steps = 2,
                                                 .budget = whole.peak_bytes / part,
                                                 .borrow_slots = 1,
                                                 .rounds = rounds});
        expect_dense_layer(Dense(problem), run.numbers,
                           name_of_case(rounds, kind) + ", chunks " + std::to_string(run.report.chunks));
      }
  }
}

TEST_F(CudaLayer, SpillsAsThePlannersOfTheHostDo) {
  const MoeCase problem({{32, 4, bf16_expert(32, 16)}, {200, 200, 200, 200}, 5.0, 0.0}, 3);
  for (Kind kind : kKinds) {
    const PlannerOptions options{kind, 1000, 16, 0};
    Counts counts(4, 32);
    for (int r = 0; r < 4; ++r)
      for (std::int32_t e : problem.top_k_of(r).experts)
        if (e >= 0) ++counts.rows()[static_cast<std::size_t>(r * 32 + e)];
    counts.sum_loads();
    StepPlan expected;
    make_planner(options)->plan(counts, LayerPlacement::contiguous(32, 4), expected);
    const CudaRun run = run_on_gpu(problem, {.planner = options, .borrow_slots = 31, .rounds = 1});
    EXPECT_EQ(run.report.transfers, static_cast<int>(expected.transfers().size()));
    EXPECT_FALSE(fell_back_to_ep(run.report.reason));
    for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(run.report.rank_loads[r], expected.rank_loads()[r]);
  }
}

TEST_F(CudaLayer, IsExactWithRedundantExperts) {
  const MoeCase problem({{5, 2, bf16_expert(32, 24)}, {50, 60, 70}, 1.5, 0.0}, 3);
  for (Kind kind : kKinds) {
    const CudaRun run = run_on_gpu(problem, {.planner = {kind, 1000, 4, 0},
                                             .backward = true,
                                             .steps = 2,
                                             .homes = {{2, 0}, {0, 1}, {2}, {1, 2, 0}, {0}}});
    expect_dense_layer(Dense(problem), run.numbers, name_of_case(0, kind));
  }
}

// Also shows that a step neither synchronises with the host nor allocates: either would break the capture or
// a replay.
TEST_F(CudaLayer, ACapturedStepIsExactForEveryRoutingThatItIsReplayedWith) {
  const MoeCase first({{24, 3, bf16_expert(64, 40)}, {150, 90, 0, 200}, 2.0, 0.02}, 1);
  std::vector<MoeCase> cases;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    cases.push_back(first);
    const MoeCase other({first.shape().moe, first.shape().tokens, static_cast<double>(seed) * 2, 0.05},
                        seed + 40);
    const auto ids = other.top_k().experts;
    cases.back().ids().assign(ids.begin(), ids.end());
  }
  for (Kind kind : kKinds)
    for (const bool tight : {false, true}) {
      CudaRunOptions options{.planner = {kind, 1000, 4, 0}, .backward = true};
      if (tight) options.budget = run_on_gpu(first, options).peak_bytes / 2;
      const std::vector<CudaRun> runs = replay_on_gpu(first, cases, options);
      for (std::size_t i = 0; i < runs.size(); ++i)
        expect_dense_layer(Dense(cases[i]), runs[i].numbers, name_of_case(static_cast<int>(i), kind));
    }
}

TEST_F(CudaLayer, RefusesTheLeastBudgetLessAByteAndTakesIt) {
  const MoeCase problem({{8, 2, bf16_expert(64, 32)}, {100, 100}, 1.0, 0.0}, 8);
  std::int64_t least = 0;
  try {
    run_on_gpu(problem, {.budget = 1});
    FAIL() << "one byte was enough";
  } catch (const BudgetTooSmall& error) {
    least = least_of(error);
  }
  EXPECT_THROW(run_on_gpu(problem, {.budget = least - 1}), BudgetTooSmall);
  expect_dense_layer(Dense(problem, false), run_on_gpu(problem, {.budget = least}).numbers, "least budget");
}

TEST_F(CudaLayer, RefusesWhatItHasNot) {
  run_ranks(1, [](Communicator& comm) {
    Arena arena(Device::cuda(0));
    CudaStream stream;
    const ExpertShape f32{16, 16, Activation::swiglu, false, DataType::f32};
    const MoeShape two{2, 1, bf16_expert(16, 16)}, three{3, 1, bf16_expert(16, 16)};
    const LayerPlacement placement = LayerPlacement::contiguous(2, 1);
    MoeOptions options;
    options.device = on_gpu(stream);
    EXPECT_THROW(MoeLayer(comm, arena, {2, 1, f32}, placement, options), Unsupported);
    EXPECT_THROW(MoeLayer(comm, arena, three, placement, options), InvalidArgument);
    EXPECT_THROW(MoeLayer(comm, arena, two, placement), InvalidArgument);  // the arena is on a GPU
  });
}

}  // namespace
}  // namespace evenkeel::testing
