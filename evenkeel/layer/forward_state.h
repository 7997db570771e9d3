// What forward leaves for backward: the step's plan, its tokens' choices, and the chunks that were kept.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/exchange/top_k.h"
#include "evenkeel/layer/saved_activations.h"
#include "evenkeel/memory/chunk_planner.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// Move-only. Several may be in flight; backward consumes one, and dropping one without backward is legal.
// Must go before the layer that made it, on the layer's thread.
class ForwardState {
 public:
  ForwardState() = default;

  // Holds a step that backward can still consume.
  explicit operator bool() const { return body_ != nullptr; }
  const StepPlan& plan() const { return body_->plan; }
  // The chunks in which the step was carried out.
  std::span<const Chunk> chunks() const { return body_->chunks; }

 private:
  friend class MoeLayer;

  // A chunk whose rows and tables stayed.
  struct Kept {
    std::int64_t first_token = 0;
    Chunk chunk;
    Dispatched dispatched;
    SavedActivations saved;
  };
  struct Body {
    StepPlan plan;
    std::vector<Chunk> chunks;
    std::vector<Kept> kept;  // the first of them
    ConstRows hidden;
    TopK top_k;          // in `choices`
    Buffer own_choices;  // where the layer has no room set aside for them
    std::byte* choices = nullptr;
  };
  // Bodies go back to the layer's pool, so that the vectors inside are used again.
  struct Pool {
    std::vector<std::unique_ptr<Body>> free;  // has room for every body there is
    std::size_t bodies = 0;
    std::vector<std::byte*> free_choices;  // rooms set aside; never more than at the beginning
  };
  struct Recycle {
    Pool* pool;  // set by take()
    void operator()(Body* body) const noexcept;
  };
  static ForwardState take(Pool& pool);

  std::unique_ptr<Body, Recycle> body_;
};

}  // namespace evenkeel
