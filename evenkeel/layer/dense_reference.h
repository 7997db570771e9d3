// A mixture of experts evaluated the plain way: one process, every token by every expert it chose, fp64.
// Shares no arithmetic with the layer, and is what its errors are measured against.
//
// Cost   3 T k D F multiply-adds forward, three times that with backward, on all cores of the machine.
// Order  Tokens are added as they are done, so that the last bits of fp64 differ from run to run.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel {

struct DenseResult {
  std::vector<double> output;  // [tokens, D]
  // With backward only.
  std::vector<double> grad_hidden;          // [tokens, D]
  std::vector<double> grad_router_weights;  // [tokens * k]
  struct Expert {
    std::vector<double> gate_up, down, gate_up_bias, down_bias;
  };
  std::vector<Expert> grad_experts;  // [E], with no numbers where an expert has no token: zeros
};

// `weights` of all experts; `hidden` and `top_k` of all tokens; `grad_output` [tokens, D], or null data for
// forward alone. Shapes must agree and ids be in -1..E-1: nothing is checked.
DenseResult evaluate_dense(const ExpertShape& shape, std::span<const ExpertWeights> weights, ConstRows hidden,
                           const TopK& top_k, ConstRows grad_output = {});

}  // namespace evenkeel
