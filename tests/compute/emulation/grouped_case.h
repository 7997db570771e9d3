// All assignments of a one-rank case in the form a GPU receives them: positions grouped by expert.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "evenkeel/compute/cuda/expert_ffn.h"
#include "tests/compute/ffn_outcome.h"

namespace evenkeel::testing {

struct GroupedCase {
  // Positions within a group are in the order of assignments, or shuffled. The first `gap` positions belong
  // to no group.
  explicit GroupedCase(const MoeCase& problem, std::uint64_t shuffle = 0, int gap = 0)
      : top_k(problem.top_k()) {
    input_row.assign(number(gap), -1);
    output_row.assign(number(gap), -1);
    std::mt19937_64 random(shuffle);
    for (std::size_t e = 0; e < problem.weights().size(); ++e) {
      begin.push_back(static_cast<std::int32_t>(input_row.size()));
      for (std::size_t a = 0; a < top_k.experts.size(); ++a)
        if (top_k.experts[a] == static_cast<std::int32_t>(e))
          output_row.push_back(static_cast<std::int32_t>(a));
      if (shuffle != 0) std::shuffle(output_row.begin() + begin.back(), output_row.end(), random);
      for (std::size_t i = input_row.size(); i < output_row.size(); ++i)
        input_row.push_back(output_row[i] / top_k.k);
    }
    begin.push_back(static_cast<std::int32_t>(input_row.size()));
  }

  int num_groups() const { return static_cast<int>(begin.size()) - 1; }
  std::int64_t positions() const { return begin.back(); }

  TopK top_k;
  std::vector<std::int32_t> begin, input_row, output_row;
};

// An outcome of the right sizes, filled with zeros.
inline FfnOutcome empty_outcome(const MoeCase& problem) {
  const ExpertShape& shape = problem.shape().moe.expert;
  FfnOutcome outcome;
  const std::size_t assignments = problem.top_k().experts.size();
  outcome.results.resize(assignments * number(shape.hidden * bytes_of(shape.type)));
  outcome.grad_input.resize(number(problem.all_tokens() * shape.hidden));
  outcome.grad_weight.resize(assignments);
  outcome.grad_experts.assign(problem.weights().size(), std::vector<float>(number(shape.elements())));
  return outcome;
}

// Pointers to the parts of one expert's gradients in a block of shape.elements() numbers.
template <class T>
DeviceExpertGradients gradients_in(const ExpertShape& shape, T* block) {
  T* const down = block + shape.gate_up_rows() * shape.hidden;
  T* const bias = down + shape.intermediate * shape.hidden;
  return {block, down, shape.biases ? bias : nullptr, shape.biases ? bias + shape.gate_up_rows() : nullptr};
}

}  // namespace evenkeel::testing
