// The backward pass of one chunk that is here whole: gradients of its results arrive, the experts' products
// are made, gradients of its rows go home.
#pragma once

#include "evenkeel/exchange/exchange.h"
#include "evenkeel/layer/internal/experts_backward.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/saved_step.h"

namespace evenkeel::internal {

class ChunkBackward {
 public:
  // Collective, as is all of it; one of the runs below must follow. All must stay until then.
  ChunkBackward(LayerBody& layer, Dispatched& dispatched, const TokenRows& tokens)
      : layer_(layer),
        dispatched_(dispatched),
        tokens_(tokens),
        incoming_(layer.exchange.dispatch_gradients(dispatched, tokens.grad_output, tokens.top_k.weights)),
        computed_(layer.exchange.gradient_buffer(dispatched, tokens.grad_hidden)) {}

  // Borrowed weights are there already.
  void run(SavedActivations saved);
  // For want of memory: own experts first, then borrowed ones, whose weights are fetched then.
  // budget/chunk_bytes.h says what is held when.
  void run_in_parts(SavedActivations saved, const StepPlan& plan, bool some_again);

 private:
  void run_own_part(SavedActivations& saved);
  void run_foreign_part(SavedActivations& saved, const StepPlan& plan);
  void run_again_part(const SavedActivations& saved, const StepPlan& plan);
  void send_gradients_home();
  GradientFlow flow() const { return {dispatched_, tokens_, incoming_, computed_}; }

  LayerBody& layer_;
  Dispatched& dispatched_;
  const TokenRows& tokens_;
  Exchange::IncomingGradients incoming_;
  Exchange::RowGradients computed_;
};

}  // namespace evenkeel::internal
