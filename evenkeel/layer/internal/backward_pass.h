// The backward pass of a layer: first the chunks that were kept, the last of them first, then the rest,
// dispatched and computed again.
#pragma once

#include <cstdint>

#include "evenkeel/layer/internal/experts_backward.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/saved_step.h"

namespace evenkeel::internal {

class BackwardPass {
 public:
  // All must stay until the pass is run.
  BackwardPass(LayerBody& layer, SavedStep& step, const BackwardTensors& tensors)
      : layer_(layer), step_(step), tensors_(tensors) {}

  // Collective.
  void run();

 private:
  void drop_what_does_not_fit();
  void run_kept();
  void run_kept_chunk(KeptChunk& kept);
  void run_rest();
  void plan_rest(const TopK& rest);
  void run_again(const Chunk& chunk, std::int64_t before, std::int64_t rest);
  SavedActivations save_again(const Dispatched& dispatched, const void* hidden);

  LayerBody& layer_;
  SavedStep& step_;
  BackwardTensors tensors_;
};

}  // namespace evenkeel::internal
