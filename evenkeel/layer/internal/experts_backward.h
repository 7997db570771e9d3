// The experts' work in backward on the rows of a chunk.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/exchange/exchange.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/saved_step.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel::internal {

// The caller's tensors of a backward pass.
struct BackwardTensors {
  ConstRows grad_output;
  const MoeGradients& gradients;
};

// A chunk's tokens in the caller's tensors.
struct TokenRows {
  TopK top_k;
  const void* hidden = nullptr;
  const void* grad_output = nullptr;
  void* grad_hidden = nullptr;
  std::span<float> grad_router_weights;
};

TokenRows token_rows(const LayerBody& layer, const SavedStep& step, std::int64_t first, std::int64_t tokens,
                     const BackwardTensors& tensors);

// Tables and tensors that a chunk's products read and write in backward, besides the layer's groups.
struct GradientFlow {
  const Dispatched& dispatched;
  const TokenRows& tokens;
  const Exchange::IncomingGradients& incoming;
  const Exchange::RowGradients& computed;
};

// To be called first in a pass: sets where gradients of the rank's own experts go. Those that other ranks
// compute and send home go there too.
void attach_owned_gradients(LayerBody& layer, const MoeGradients& gradients);

// Of the layer's groups, which were collected for this pass.
void run_experts_backward(LayerBody& layer, Pass pass, const GradientFlow& flow);

// Of the groups of the last run_experts_backward(), what it left for want of memory.
void add_gate_up_gradients(LayerBody& layer, const GradientFlow& flow);

}  // namespace evenkeel::internal
