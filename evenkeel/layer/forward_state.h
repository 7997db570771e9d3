// What forward leaves for backward: the step's plan, the routes of its rows, and saved activations.
#pragma once

#include <memory>
#include <vector>

#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/dispatched.h"
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

 private:
  friend class MoeLayer;

  struct Body {
    StepPlan plan;
    Dispatched dispatched;
    Buffer saved;           // activations, by position
    Buffer router_weights;  // f32, by assignment
  };
  // Bodies go back to the layer's pool, so that the vectors inside are used again.
  struct Pool {
    std::vector<std::unique_ptr<Body>> free;  // has room for every body there is
    std::size_t bodies = 0;
  };
  struct Recycle {
    Pool* pool;  // set by take()
    void operator()(Body* body) const noexcept {
      body->dispatched = {};
      body->saved = {};
      body->router_weights = {};
      pool->free.emplace_back(body);
    }
  };
  static ForwardState take(Pool& pool);

  std::unique_ptr<Body, Recycle> body_;
};

}  // namespace evenkeel
