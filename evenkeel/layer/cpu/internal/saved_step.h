// A step between its forward and its backward pass: its plan, its tokens' choices, and the chunks that were
// kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/layer/cpu/internal/saved_activations.h"
#include "evenkeel/layer/internal/layer_backend.h"
#include "evenkeel/step/decide.h"

namespace evenkeel::internal {

// A chunk whose rows and tables stayed.
struct KeptChunk {
  std::int64_t first_token = 0;
  Dispatched dispatched;
  SavedActivations saved;
};

class SavedStep final : public StepState {
 public:
  const StepPlan& plan() const override { return decision.plan; }
  std::span<const Chunk> chunks() const override { return decision.chunks; }

  StepDecision decision;        // of the forward pass, then of what backward computes again
  std::vector<KeptChunk> kept;  // the first chunks
  Buffer own_choices;           // where the layer has no memory set aside for them
  std::byte* choices = nullptr;
};

// Where a layer's steps come from and go back to, so that the vectors inside are used again.
class StepPool {
 public:
  // Memory for the choices of one step. Where some is set aside, as many steps are alive at most.
  void set_aside(std::byte* choices) {
    free_choices_.push_back(choices);
    limited_ = true;
  }

  // Null where as many are alive as may be.
  SavedStep* take();
  void give_back(SavedStep* step) noexcept;

 private:
  std::vector<std::unique_ptr<SavedStep>> free_;  // has memory for every step there is
  std::size_t steps_ = 0;
  std::vector<std::byte*> free_choices_;  // never more than at the beginning
  bool limited_ = false;
};

}  // namespace evenkeel::internal
