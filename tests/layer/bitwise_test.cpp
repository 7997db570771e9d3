// Output bits are the same for every planner, rank count and placement.
#include <gtest/gtest.h>

#include "evenkeel/compute/cpu/expert_ffn.h"
#include "tests/layer/moe_case.h"

namespace evenkeel::testing {
namespace {

constexpr PlannerOptions::Kind kKinds[] = {PlannerOptions::Kind::ep, PlannerOptions::Kind::least_loaded,
                                           PlannerOptions::Kind::level};

class Bitwise : public ::testing::TestWithParam<std::tuple<DataType, Activation>> {};

TEST_P(Bitwise, OutputBitsAreThoseOfOneRankForEveryPlannerAndRankCount) {
  const auto [type, activation] = GetParam();
  std::mt19937_64 random(20260);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < (kUnderThreadSanitizer ? 1 : 4); ++round) {
    const ExpertShape expert{between(1, 12) * 16, between(1, 10) * 8 + round, activation,
                             activation == Activation::clamped_swiglu, type};
    const auto kept = make_cpu_expert_ffn(expert, false);  // kept alive for all runs of the round
    if (!kept->bitwise().holds) GTEST_SKIP() << kept->bitwise().reason;
    const MoeCase problem({{between(4, 40), between(1, 6), expert}, {between(60, 700)}, 2.0, 0.05}, random());
    const MoeResult expected = run(problem, {});
    for (int ranks = 1; ranks <= 16; ++ranks)
      for (PlannerOptions::Kind kind : kKinds) {
        PlannerOptions planner{kind, 1000, between(1, 30), 0};
        if (kind == PlannerOptions::Kind::level && ranks % 2 == 0)
          planner.links = {Topology::uniform(2, ranks / 2, {450}, {50}), {}, {1e6, 1e3, 2e6}, 2e3};
        const MoeResult actual = run(problem.dealt_to(ranks), {planner, false, 1, {}});
        EXPECT_TRUE(actual.output == expected.output)
            << "round " << round << ", " << ranks << " ranks, planner " << static_cast<int>(kind);
      }
  }
}

// On other CPUs, a self-test decides whether bits are promised; if not, the other tests are skipped.
TEST_P(Bitwise, IsPromisedOnEveryCpuWithAvx512) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "this CPU has no AVX-512";
  const auto [type, activation] = GetParam();
  for (std::int64_t hidden : {16, 64, 400}) {
    const ExpertShape expert{hidden, 48, activation, activation == Activation::clamped_swiglu, type};
    const auto kept = make_cpu_expert_ffn(expert, false);
    EXPECT_TRUE(kept->bitwise().holds) << hidden << ": " << kept->bitwise().reason;
  }
#else
  GTEST_SKIP() << "this CPU is not x86-64";
#endif
}

INSTANTIATE_TEST_SUITE_P(TypesAndActivations, Bitwise,
                         ::testing::Combine(::testing::Values(DataType::f32, DataType::bf16),
                                            ::testing::Values(Activation::swiglu, Activation::clamped_swiglu,
                                                              Activation::gelu)));

TEST(Bitwise, HoldsForHomesAnywhereAndInCopies) {
  const ExpertShape expert{64, 48, Activation::swiglu, false, DataType::f32};
  const MoeCase problem({{7, 3, expert}, {300}, 1.5, 0.0}, 5);
  const MoeResult expected = run(problem, {});
  const std::vector<std::vector<int>> homes = {{2}, {0, 1}, {2}, {1, 2, 0}, {0}, {2}, {0}};
  for (PlannerOptions::Kind kind : kKinds) {
    const MoeResult actual = run(problem.dealt_to(3), {{kind, 1000, 8, 0}, false, 2, homes});
    EXPECT_TRUE(actual.output == expected.output) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace evenkeel::testing
