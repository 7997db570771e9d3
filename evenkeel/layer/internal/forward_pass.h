// The forward pass of a layer: plan, borrow, and chunk by chunk dispatch, compute, combine.
#pragma once

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/saved_step.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel::internal {

class ForwardPass {
 public:
  // `step` will hold what backward wants. All must stay until the pass is run.
  ForwardPass(LayerBody& layer, SavedStep& step, ConstRows hidden, const TopK& top_k, Rows output)
      : layer_(layer), step_(step), hidden_(hidden), top_k_(top_k), output_(output) {}

  // Collective.
  void run();

 private:
  void agree();
  void save_choices();
  void run_chunk(const Chunk& chunk);

  LayerBody& layer_;
  SavedStep& step_;
  ConstRows hidden_;
  const TopK& top_k_;
  Rows output_;
};

}  // namespace evenkeel::internal
