// The backward pass of a layer on the CPU: first the chunks that were kept, the last of them first, then the
// rest, dispatched and computed again. layer/internal/step_story.h has the order of its calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/exchange/exchange.h"
#include "evenkeel/layer/cpu/internal/cpu_layer.h"
#include "evenkeel/layer/cpu/internal/saved_step.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel::internal {

class BackwardPass {
 public:
  // All must stay until the pass is run.
  BackwardPass(CpuLayer& layer, SavedStep& step, ConstRows grad_output, const MoeGradients& gradients)
      : layer_(layer), step_(step), grad_output_(grad_output), gradients_(gradients) {}

  void open();
  bool next_chunk();
  void dispatch();
  void run_experts();
  void combine();
  void return_gradients();

 private:
  // A chunk's tokens in the caller's tensors.
  struct ChunkTokens {
    TopK top_k;
    const void* hidden = nullptr;
    const void* grad_output = nullptr;
    void* grad_hidden = nullptr;
    std::span<float> grad_router_weights;
  };
  // A chunk on its way. Its buffers go in the reverse order of their coming.
  struct ChunkInFlight {
    ChunkTokens tokens;
    Dispatched dispatched;
    SavedActivations saved;
    Exchange::IncomingGradients incoming;
    Exchange::RowGradients computed;
  };

  void borrow(std::span<const Pass> passes);
  void attach_owned_gradients();
  void drop_what_does_not_fit();
  bool plan_rest();
  void plan_rest_again(const TopK& rest);
  void dispatch_again();
  void compute_forward();
  void attach_gradients(std::span<ExpertGroup> groups);
  ChunkTokens tokens_of(std::int64_t first, std::int64_t count) const;

  CpuLayer& layer_;
  SavedStep& step_;
  ConstRows grad_output_;
  const MoeGradients& gradients_;
  bool borrowing_ = false;
  bool rest_is_planned_ = false;  // then the present chunk is of the rest
  std::int64_t rest_begin_ = 0;   // the first token of the rest
  std::size_t rest_chunks_begun_ = 0;
  std::optional<ChunkInFlight> in_flight_;
};

}  // namespace evenkeel::internal
