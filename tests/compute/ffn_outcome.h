// Results and gradients of all assignments of a one-rank case, to be compared with dense fp64.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/layer/moe_case.h"

namespace evenkeel::testing {

struct FfnOutcome {
  std::vector<std::byte> results;  // [assignment][hidden] in the experts' type
  std::vector<float> grad_input, grad_weight;
  std::vector<std::vector<float>> grad_experts;  // [expert]: gate_up, down, gate_up_bias, down_bias joined
  friend bool operator==(const FfnOutcome&, const FfnOutcome&) = default;
};

inline std::size_t number(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

// Fails, naming `what`, if a number differs from dense fp64 by more than the error bound.
void expect_dense(const MoeCase& problem, const FfnOutcome& outcome, const std::string& what);

}  // namespace evenkeel::testing
