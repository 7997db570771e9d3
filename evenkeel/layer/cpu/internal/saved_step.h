// A step between its forward and its backward pass: its plan, its tokens' choices, and the kept chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/layer/internal/layer_backend.h"
#include "evenkeel/step/decide.h"

namespace evenkeel::internal {

// The activations that forward saved for a chunk: of all its positions or of none.
class SavedActivations {
 public:
  // Saves none.
  SavedActivations() = default;
  SavedActivations(Arena& arena, const Dispatched& dispatched, const ChunkShape& shape, Lifetime lifetime)
      : buffer_(arena.allocate(saved_bytes(shape, dispatched.positions_here), "saved activations", lifetime)),
        bytes_each_(shape.saved_bytes) {}

  bool any() const { return bytes_each_ > 0; }
  // The activations of a position; null if none were saved.
  std::byte* at(std::int64_t position) const {
    return any() ? buffer_.data() + position * bytes_each_ : nullptr;
  }
  const Buffer& buffer() const { return buffer_; }
  void release() { buffer_.release(); }

 private:
  Buffer buffer_;
  std::int64_t bytes_each_ = 0;
};

// A chunk whose rows and tables were kept for backward.
struct KeptChunk {
  std::int64_t first_token = 0;
  Dispatched dispatched;
  SavedActivations saved;
};

class SavedStep final : public StepState {
 public:
  const StepPlan& plan() const override { return decision.plan; }
  std::span<const Chunk> chunks() const override { return decision.chunks; }

  StepDecision decision;        // made by forward; backward replaces it for the part that it recomputes
  std::vector<KeptChunk> kept;  // the step's first chunks
  Buffer own_choices;           // used if the layer has set no memory aside for choices
  std::byte* choices = nullptr;
};

// A pool of a layer's steps, so that their vectors are reused.
class StepPool {
 public:
  // Adds memory for the choices of one step. Once called, at most as many steps can be alive as there were
  // calls.
  void set_aside(std::byte* choices) {
    free_choices_.push_back(choices);
    limited_ = true;
  }

  // Returns null if the limit of steps alive is reached.
  SavedStep* take() {
    if (limited_ && free_choices_.empty()) return nullptr;
    if (free_.empty()) {
      free_.reserve(++steps_);
      free_.push_back(std::make_unique<SavedStep>());
    }
    SavedStep* const step = free_.back().release();
    free_.pop_back();
    if (limited_) {
      step->choices = free_choices_.back();
      free_choices_.pop_back();
    }
    return step;
  }
  void give_back(SavedStep* step) noexcept {
    step->kept.clear();
    step->own_choices = {};
    if (step->choices != nullptr) free_choices_.push_back(std::exchange(step->choices, nullptr));
    free_.emplace_back(step);
  }

 private:
  std::vector<std::unique_ptr<SavedStep>> free_;  // has capacity for every existing step
  std::size_t steps_ = 0;
  std::vector<std::byte*> free_choices_;  // never exceeds the number of set_aside() calls
  bool limited_ = false;
};

}  // namespace evenkeel::internal
