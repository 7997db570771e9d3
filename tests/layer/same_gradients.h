// Compares the gradients of two runs within rounding.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/layer/moe_case.h"

namespace evenkeel::testing {

// The error of an f32 sum whose terms are added in a different order, relative to the largest of all compared
// sums.
inline constexpr float kSumRounding = 2e-5f;

// Expects differences of at most `rounding` times the largest value.
template <class Numbers>
void expect_close(const Numbers& a, const Numbers& b, float rounding = kSumRounding) {
  ASSERT_EQ(a.size(), b.size());
  float largest = 0;
  for (decltype(b.size()) i = 0; i < b.size(); ++i) largest = std::max(largest, std::abs(b[i]));
  for (decltype(b.size()) i = 0; i < b.size(); ++i) ASSERT_LE(std::abs(a[i] - b[i]), rounding * largest) << i;
}

// `bound` is error_bound() of the case: the allowed error of each run.
inline void expect_same_gradients(const MoeResult& a, const MoeResult& b, const DenseResult& bound) {
  for (std::int64_t i = 0; i < a.grad_hidden.size(); ++i)
    ASSERT_LE(std::abs(static_cast<double>(a.grad_hidden[i]) - static_cast<double>(b.grad_hidden[i])),
              2 * bound.grad_hidden[static_cast<std::size_t>(i)]);
  for (std::size_t i = 0; i < a.grad_router_weights.size(); ++i)
    ASSERT_LE(std::abs(static_cast<double>(a.grad_router_weights[i]) -
                       static_cast<double>(b.grad_router_weights[i])),
              2 * bound.grad_router_weights[i]);
  const auto expect_same = [&](auto MoeResult::*tensor, auto DenseResult::Expert::*limit) {
    for (std::size_t e = 0; e < (a.*tensor).size(); ++e)
      for (std::size_t i = 0; i < (a.*tensor)[e].size(); ++i)
        ASSERT_LE(std::abs(static_cast<double>((a.*tensor)[e][i]) - static_cast<double>((b.*tensor)[e][i])),
                  2 * (bound.grad_experts[e].*limit)[i])
            << "expert " << e;
  };
  expect_same(&MoeResult::gate_up, &DenseResult::Expert::gate_up);
  expect_same(&MoeResult::down, &DenseResult::Expert::down);
  expect_same(&MoeResult::gate_up_bias, &DenseResult::Expert::gate_up_bias);
  expect_same(&MoeResult::down_bias, &DenseResult::Expert::down_bias);
}

}  // namespace evenkeel::testing
