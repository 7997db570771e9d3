#include "evenkeel/layer/forward_state.h"

namespace evenkeel {

void ForwardState::Recycle::operator()(Body* body) const noexcept {
  body->kept.clear();
  body->own_choices = {};
  if (body->choices != nullptr) pool->free_choices.push_back(std::exchange(body->choices, nullptr));
  pool->free.emplace_back(body);
}

ForwardState ForwardState::take(Pool& pool) {
  ForwardState state;
  if (pool.free.empty()) {
    pool.free.reserve(++pool.bodies);
    pool.free.push_back(std::make_unique<Body>());
  }
  state.body_ = {pool.free.back().release(), Recycle{&pool}};
  pool.free.pop_back();
  return state;
}

}  // namespace evenkeel
