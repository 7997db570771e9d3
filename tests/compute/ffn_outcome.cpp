#include "tests/compute/ffn_outcome.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/layer/error_bound.h"

namespace evenkeel::testing {

namespace {

template <class Actual>
void expect_within(const Actual& actual, const std::vector<double>& expected,
                   const std::vector<double>& bound, const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_LE(std::abs(static_cast<double>(actual[i]) - expected[i]), bound[i]) << what << " " << i;
}

}  // namespace

void expect_dense(const MoeCase& problem, const FfnOutcome& outcome, const std::string& what) {
  const ExpertShape& shape = problem.shape().moe.expert;
  const DenseResult dense = problem.dense(true), bound = error_bound(problem, true);
  const TopK top_k = problem.top_k();
  std::vector<double> output(dense.output.size());
  Tensor results(static_cast<std::int64_t>(top_k.experts.size()) * shape.hidden, shape.type);
  std::ranges::copy(outcome.results, static_cast<std::byte*>(results.data()));
  for (std::size_t a = 0; a < top_k.experts.size(); ++a)
    for (std::size_t d = 0; top_k.experts[a] >= 0 && d < number(shape.hidden); ++d)
      output[a / number(top_k.k) * number(shape.hidden) + d] +=
          static_cast<double>(top_k.weights[a]) *
          static_cast<double>(results[static_cast<std::int64_t>(a * number(shape.hidden) + d)]);
  expect_within(output, dense.output, bound.output, what + ", output");
  expect_within(outcome.grad_input, dense.grad_hidden, bound.grad_hidden, what + ", gradient of input");
  expect_within(outcome.grad_weight, dense.grad_router_weights, bound.grad_router_weights,
                what + ", gradient of weights");
  for (std::size_t e = 0; e < dense.grad_experts.size(); ++e) {
    const auto& exact = dense.grad_experts[e];
    const auto& limit = bound.grad_experts[e];
    const float* actual = outcome.grad_experts[e].data();
    const std::string of = what + ", gradients of expert " + std::to_string(e);
    expect_within(actual, exact.gate_up, limit.gate_up, of);
    expect_within(actual += exact.gate_up.size(), exact.down, limit.down, of);
    if (!shape.biases) continue;
    expect_within(actual += exact.down.size(), exact.gate_up_bias, limit.gate_up_bias, of);
    expect_within(actual + exact.gate_up_bias.size(), exact.down_bias, limit.down_bias, of);
  }
}

}  // namespace evenkeel::testing
