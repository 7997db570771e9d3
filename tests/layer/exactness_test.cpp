// Output and all gradients equal the dense fp64 evaluation within the rounding of the type.
#include <gtest/gtest.h>

#include "evenkeel/compute/cpu/expert_ffn.h"
#include "tests/layer/dense_results.h"
#include "tests/plan/random_nodes.h"

namespace evenkeel::testing {
namespace {

constexpr PlannerOptions::Kind kPlanners[] = {PlannerOptions::Kind::ep, PlannerOptions::Kind::least_loaded,
                                              PlannerOptions::Kind::level};

class Exactness : public ::testing::TestWithParam<std::tuple<DataType, Activation>> {};

TEST_P(Exactness, OutputAndGradientsAreDenseOnesForEveryPlanner) {
  const auto [type, activation] = GetParam();
  std::mt19937_64 random(7);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < (kUnderThreadSanitizer ? 1 : 3); ++round) {
    const ExpertShape expert{between(2, 10) * 16 + round, between(2, 10) * 8, activation,
                             activation == Activation::clamped_swiglu, type};
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(between(2, 6)));
    for (auto& count : tokens) count = between(0, 120);
    const MoeCase problem({{between(3, 20), between(1, 5), expert}, tokens, 2.0, 0.05}, random());
    const Dense dense(problem);
    const auto kept = make_cpu_expert_ffn(expert, true);  // kept alive for all runs of the round
    for (PlannerOptions::Kind kind : kPlanners) {
      PlannerOptions planner{kind, 1000, between(1, 20), 0};
      if (kind == PlannerOptions::Kind::level && round % 2 == 0)
        planner.links = {
            Topology::uniform(static_cast<int>(tokens.size()), 1, {450}, {50}), {.ranks_per_nic = 2}, {}};
      RunOptions options{planner, true, 2, {}};
      if (round % 2 == 1) options.node_of_rank = random_nodes(static_cast<int>(tokens.size()), random);
      options.sum_in_nodes = round % 2 == 1;
      expect_dense_layer(
          dense, run(problem, options),
          "round " + std::to_string(round) + ", planner " + std::to_string(static_cast<int>(kind)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TypesAndActivations, Exactness,
                         ::testing::Combine(::testing::Values(DataType::f32, DataType::bf16),
                                            ::testing::Values(Activation::swiglu, Activation::clamped_swiglu,
                                                              Activation::gelu)));

TEST(Exactness, EveryOrdinaryStepIsExact) {
  const ExpertShape expert{48, 40, Activation::swiglu, false, DataType::f32};
  const auto kept = make_cpu_expert_ffn(expert, true);
  for (const Ordinary& each : ordinary_steps(expert)) {
    const MoeCase problem(each.shape, 99);
    const Dense dense(problem);
    for (PlannerOptions::Kind kind : kPlanners)
      expect_dense_layer(dense, run(problem, {{kind, 1000, 4, 0}, true, 1, {}}), each.name);
  }
}

TEST(Exactness, GradientsOfCopiesArriveAtTheOwner) {
  const ExpertShape expert{32, 24, Activation::swiglu, false, DataType::f32};
  const MoeCase problem({{5, 2, expert}, {50, 60, 70}, 1.5, 0.0}, 3);
  const std::vector<std::vector<int>> homes = {{2, 0}, {0, 1}, {2}, {1, 2, 0}, {0}};
  const Dense dense(problem);
  for (PlannerOptions::Kind kind : kPlanners)
    expect_dense_layer(dense, run(problem, {{kind, 1000, 4, 0}, true, 2, homes}),
                       "copies, planner " + std::to_string(static_cast<int>(kind)));
}

}  // namespace
}  // namespace evenkeel::testing
