// The results and gradients that an expert network made of all assignments of a one-rank case, beside dense
// fp64.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/layer/moe_case.h"

namespace evenkeel::testing {

struct FfnOutcome {
  std::vector<std::byte> results;  // by assignment
  std::vector<float> grad_input, grad_weight;
  std::vector<std::vector<float>> grad_experts;  // gate_up, down, gate_up_bias, down_bias in one
  friend bool operator==(const FfnOutcome&, const FfnOutcome&) = default;
};

inline std::size_t number(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

// Fails, naming `what`, where a number is further from dense than the error's bound.
void expect_dense(const MoeCase& problem, const FfnOutcome& outcome, const std::string& what);

}  // namespace evenkeel::testing
