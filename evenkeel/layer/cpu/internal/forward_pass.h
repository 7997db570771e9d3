// The forward pass of a layer on the CPU; layer/internal/step_story.h has the order of its calls.
#pragma once

#include <cstddef>
#include <optional>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/layer/cpu/internal/cpu_layer.h"
#include "evenkeel/layer/cpu/internal/experts_forward.h"
#include "evenkeel/layer/cpu/internal/saved_step.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel::internal {

class ForwardPass {
 public:
  // `step` will hold what backward wants. All must stay until the pass is run.
  ForwardPass(CpuLayer& layer, SavedStep& step, ConstRows hidden, const TopK& top_k, Rows output)
      : layer_(layer), step_(step), hidden_(hidden), top_k_(top_k), output_(output) {}

  void agree();
  void borrow();
  bool next_chunk();
  void dispatch();
  void run_experts();
  void combine();
  void give_back();

 private:
  // A chunk on its way. Its buffers go in the reverse order of their coming.
  struct ChunkInFlight {
    std::int64_t first_token;
    TopK top_k;
    Dispatched dispatched;
    SavedActivations saved;
    std::optional<ExpertsForward> experts;
  };

  void save_choices();

  CpuLayer& layer_;
  SavedStep& step_;
  ConstRows hidden_;
  const TopK& top_k_;
  Rows output_;
  std::size_t chunks_begun_ = 0;
  const Chunk* chunk_ = nullptr;
  std::optional<ChunkInFlight> in_flight_;
};

}  // namespace evenkeel::internal
