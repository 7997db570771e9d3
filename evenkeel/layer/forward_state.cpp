#include "evenkeel/layer/forward_state.h"

namespace evenkeel {

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
