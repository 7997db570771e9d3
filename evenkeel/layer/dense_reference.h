// Evaluates a mixture of experts directly: in one process, in fp64, every token by every expert it chose.
// Shares no arithmetic with the layer; the layer's errors are measured against it.
//
// Cost   3 T k D F multiply-adds forward, three times that with backward, on all cores of the machine.
// Order  Tokens are added in the order in which they finish, so the last bits of fp64 vary between runs.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel {

struct DenseResult {
  std::vector<double> output;  // [tokens, D]
  // The gradients are computed only with backward.
  std::vector<double> grad_hidden;          // [tokens, D]
  std::vector<double> grad_router_weights;  // [tokens * k]
  struct Expert {
    std::vector<double> gate_up, down, gate_up_bias, down_bias;
  };
  std::vector<Expert> grad_experts;  // [E], empty (meaning zeros) for an expert without tokens
};

// `weights` are of all experts, `hidden` and `top_k` of all tokens. `grad_output` is [tokens, D], or has null
// data for forward only. Shapes must agree and ids must be in -1..E-1; nothing is checked.
DenseResult evaluate_dense(const ExpertShape& shape, std::span<const ExpertWeights> weights, ConstRows hidden,
                           const TopK& top_k, ConstRows grad_output = {});

}  // namespace evenkeel
