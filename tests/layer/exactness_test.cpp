// Output and all gradients are those of the dense fp64 evaluation, within the rounding of the type.
#include <gtest/gtest.h>

#include <cmath>

#include "evenkeel/compute/cpu/expert_ffn.h"
#include "tests/layer/error_bound.h"
#include "tests/layer/moe_case.h"

namespace evenkeel::testing {
namespace {

constexpr PlannerOptions::Kind kPlanners[] = {PlannerOptions::Kind::ep, PlannerOptions::Kind::least_loaded,
                                              PlannerOptions::Kind::level};

// Largest |actual - expected| / bound.
template <class Actual>
double worst(const Actual& actual, const std::vector<double>& expected, const std::vector<double>& bound) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error =
        std::abs(static_cast<double>(actual[static_cast<decltype(actual.size())>(i)]) - expected[i]);
    if (error > 0) largest = std::max(largest, error / bound[i]);
    if (std::isnan(error)) return INFINITY;
  }
  return largest;
}

// The results that a case should give, evaluated once for all planners.
struct Expected {
  explicit Expected(const MoeCase& problem)
      : dense(problem.dense(true)),
        bound(error_bound(problem, true)),
        biases(problem.shape().moe.expert.biases) {}

  DenseResult dense;
  DenseResult bound;
  bool biases;
};

void expect_exact(const Expected& of, const MoeResult& result, const std::string& what) {
  const auto& [dense, bound, biases] = of;
  EXPECT_LE(worst(result.output, dense.output, bound.output), 1.0) << what << ": output";
  EXPECT_LE(worst(result.grad_hidden, dense.grad_hidden, bound.grad_hidden), 1.0) << what << ": grad hidden";
  EXPECT_LE(worst(result.grad_router_weights, dense.grad_router_weights, bound.grad_router_weights), 1.0)
      << what << ": grad router weights";
  for (std::size_t e = 0; e < dense.grad_experts.size(); ++e) {
    const DenseResult::Expert& expected = dense.grad_experts[e];
    const DenseResult::Expert& limit = bound.grad_experts[e];
    EXPECT_LE(worst(result.gate_up[e], expected.gate_up, limit.gate_up), 1.0) << what << ": gate_up " << e;
    EXPECT_LE(worst(result.down[e], expected.down, limit.down), 1.0) << what << ": down " << e;
    if (!biases) continue;
    EXPECT_LE(worst(result.gate_up_bias[e], expected.gate_up_bias, limit.gate_up_bias), 1.0)
        << what << " " << e;
    EXPECT_LE(worst(result.down_bias[e], expected.down_bias, limit.down_bias), 1.0) << what << " " << e;
  }
}

class Exactness : public ::testing::TestWithParam<std::tuple<DataType, Activation>> {};

TEST_P(Exactness, OutputAndGradientsAreDenseOnesForEveryPlanner) {
  const auto [type, activation] = GetParam();
  std::mt19937_64 random(7);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < (kThreadsAreWatched ? 1 : 3); ++round) {
    const ExpertShape expert{between(2, 10) * 16 + round, between(2, 10) * 8, activation,
                             activation == Activation::clamped_swiglu, type};
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(between(2, 6)));
    for (auto& count : tokens) count = between(0, 120);
    const MoeCase problem({{between(3, 20), between(1, 5), expert}, tokens, 2.0, 0.05}, random());
    const Expected expected(problem);
    const auto kept = make_cpu_expert_ffn(expert, true);  // for all runs of the round
    for (PlannerOptions::Kind kind : kPlanners)
      expect_exact(expected, run(problem, {{kind, 1000, between(1, 20), 0}, true, 2, {}}),
                   "round " + std::to_string(round) + ", planner " + std::to_string(static_cast<int>(kind)));
  }
}

INSTANTIATE_TEST_SUITE_P(TypesAndActivations, Exactness,
                         ::testing::Combine(::testing::Values(DataType::f32, DataType::bf16),
                                            ::testing::Values(Activation::swiglu, Activation::clamped_swiglu,
                                                              Activation::gelu)));

// Shapes of a step that are ordinary, each with every planner.
struct Ordinary {
  const char* name;
  CaseShape shape;
};

TEST(Exactness, EveryOrdinaryStepIsExact) {
  const ExpertShape expert{48, 40, Activation::swiglu, false, DataType::f32};
  const Ordinary cases[] = {
      {"one rank", {{5, 2, expert}, {33}, 1.0, 0.0}},
      {"no tokens on some ranks", {{6, 2, expert}, {0, 40, 0, 17}, 1.0, 0.0}},
      {"no tokens at all", {{6, 2, expert}, {0, 0, 0}, 1.0, 0.0}},
      {"fewer tokens than ranks", {{8, 1, expert}, {1, 0, 0, 1, 0, 0, 0, 1}, 1.0, 0.0}},
      {"fewer experts than ranks", {{2, 2, expert}, {9, 8, 7, 6, 5}, 0.0, 0.0}},
      {"experts not divisible by ranks", {{7, 3, expert}, {20, 20, 20}, 1.0, 0.0}},
      {"every id is none", {{4, 2, expert}, {10, 10}, 1.0, 1.0}},
      {"everything on few experts, ids repeated", {{16, 4, expert}, {64, 64, 64, 64}, 6.0, 0.1}},
  };
  const auto kept = make_cpu_expert_ffn(expert, true);
  for (const Ordinary& each : cases) {
    const MoeCase problem(each.shape, 99);
    const Expected expected(problem);
    for (PlannerOptions::Kind kind : kPlanners)
      expect_exact(expected, run(problem, {{kind, 1000, 4, 0}, true, 1, {}}), each.name);
  }
}

TEST(Exactness, GradientsOfCopiesArriveAtTheOwner) {
  const ExpertShape expert{32, 24, Activation::swiglu, false, DataType::f32};
  const MoeCase problem({{5, 2, expert}, {50, 60, 70}, 1.5, 0.0}, 3);
  const std::vector<std::vector<int>> homes = {{2, 0}, {0, 1}, {2}, {1, 2, 0}, {0}};
  const Expected expected(problem);
  for (PlannerOptions::Kind kind : kPlanners)
    expect_exact(expected, run(problem, {{kind, 1000, 4, 0}, true, 2, homes}),
                 "copies, planner " + std::to_string(static_cast<int>(kind)));
}

}  // namespace
}  // namespace evenkeel::testing
