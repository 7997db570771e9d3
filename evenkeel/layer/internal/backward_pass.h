// The backward pass of a layer: first the chunks that were kept, the last of them first, then the rest,
// dispatched and computed again.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/exchange/exchange.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/saved_step.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel::internal {

class BackwardPass {
 public:
  // All must stay until the pass is run.
  BackwardPass(LayerBody& layer, SavedStep& step, ConstRows grad_output, const MoeGradients& gradients)
      : layer_(layer), step_(step), grad_output_(grad_output), gradients_(gradients) {}

  // Collective.
  void run();

 private:
  // A chunk's tokens in the caller's tensors.
  struct ChunkTokens {
    TopK top_k;
    const void* hidden = nullptr;
    const void* grad_output = nullptr;
    void* grad_hidden = nullptr;
    std::span<float> grad_router_weights;
  };

  void attach_owned_gradients();
  void drop_what_does_not_fit();
  void run_kept();
  void run_rest();
  void plan_rest(const TopK& rest);
  void run_again(const Chunk& chunk, std::int64_t before, std::int64_t rest);
  SavedActivations compute_forward(const Dispatched& dispatched, const void* hidden);
  void run_chunk(Dispatched& dispatched, SavedActivations saved, const ChunkTokens& tokens);
  void run_experts(const Dispatched& dispatched, const SavedActivations& saved, const ChunkTokens& tokens,
                   const Exchange::IncomingGradients& incoming, const Exchange::RowGradients& computed);
  void attach_gradients();
  ChunkTokens tokens_of(std::int64_t first, std::int64_t count) const;

  LayerBody& layer_;
  SavedStep& step_;
  ConstRows grad_output_;
  const MoeGradients& gradients_;
};

}  // namespace evenkeel::internal
