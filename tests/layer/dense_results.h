// Checks that a layer's results are within error bounds of the dense fp64 evaluation.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/layer/error_bound.h"
#include "tests/layer/moe_case.h"

namespace evenkeel::testing {

// The largest |actual - expected| / bound; infinity if a value is not finite.
template <class Actual>
double worst(const Actual& actual, const std::vector<double>& expected, const std::vector<double>& bound) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double number = static_cast<double>(actual[static_cast<decltype(actual.size())>(i)]);
    if (!std::isfinite(number)) return INFINITY;
    const double error = std::abs(number - expected[i]);
    if (error > 0) largest = std::max(largest, error / bound[i]);
  }
  return largest;
}

// The expected results of a case, evaluated once for all its runs.
struct Dense {
  explicit Dense(const MoeCase& problem, bool with_backward = true)
      : backward(with_backward),
        biases(problem.shape().moe.expert.biases),
        exact(problem.dense(with_backward)),
        bound(error_bound(problem, with_backward)) {}

  bool backward;
  bool biases;
  DenseResult exact;
  DenseResult bound;
};

// Checks the results per token.
inline void expect_dense_tokens(const Dense& dense, const MoeResult& result, const std::string& what) {
  const auto& [backward, biases, exact, bound] = dense;
  EXPECT_LE(worst(result.output, exact.output, bound.output), 1.0) << what << ": output";
  if (!backward) return;
  EXPECT_LE(worst(result.grad_hidden, exact.grad_hidden, bound.grad_hidden), 1.0) << what << ": grad hidden";
  EXPECT_LE(worst(result.grad_router_weights, exact.grad_router_weights, bound.grad_router_weights), 1.0)
      << what << ": grad router weights";
}

// Checks the results per token and per expert.
inline void expect_dense_layer(const Dense& dense, const MoeResult& result, const std::string& what) {
  expect_dense_tokens(dense, result, what);
  for (std::size_t e = 0; e < dense.exact.grad_experts.size(); ++e) {
    const DenseResult::Expert& expected = dense.exact.grad_experts[e];
    const DenseResult::Expert& limit = dense.bound.grad_experts[e];
    EXPECT_LE(worst(result.gate_up[e], expected.gate_up, limit.gate_up), 1.0) << what << ": gate_up " << e;
    EXPECT_LE(worst(result.down[e], expected.down, limit.down), 1.0) << what << ": down " << e;
    if (!dense.biases) continue;
    EXPECT_LE(worst(result.gate_up_bias[e], expected.gate_up_bias, limit.gate_up_bias), 1.0)
        << what << " " << e;
    EXPECT_LE(worst(result.down_bias[e], expected.down_bias, limit.down_bias), 1.0) << what << " " << e;
  }
}

// Ordinary step shapes and edge cases, with names.
struct Ordinary {
  const char* name;
  CaseShape shape;
};
inline std::vector<Ordinary> ordinary_steps(const ExpertShape& expert) {
  return {{"one rank", {{5, 2, expert}, {33}, 1.0, 0.0}},
          {"no tokens on some ranks", {{6, 2, expert}, {0, 40, 0, 17}, 1.0, 0.0}},
          {"no tokens at all", {{6, 2, expert}, {0, 0, 0}, 1.0, 0.0}},
          {"fewer tokens than ranks", {{8, 1, expert}, {1, 0, 0, 1, 0, 0, 0, 1}, 1.0, 0.0}},
          {"fewer experts than ranks", {{2, 2, expert}, {9, 8, 7, 6, 5}, 0.0, 0.0}},
          {"experts not divisible by ranks", {{7, 3, expert}, {20, 20, 20}, 1.0, 0.0}},
          {"every id is none", {{4, 2, expert}, {10, 10}, 1.0, 1.0}},
          {"everything on few experts, ids repeated", {{16, 4, expert}, {64, 64, 64, 64}, 6.0, 0.1}}};
}

}  // namespace evenkeel::testing
