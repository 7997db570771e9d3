// Forward and backward of a step as sequences of calls, the same on every device.
//
// A pass is forward or backward on one rank; layer/cpu/ and layer/cuda/ each implement both. All calls are
// collective.
#pragma once

namespace evenkeel::internal {

template <class Pass>
void run_forward(Pass& pass) {
  pass.plan();    // gather counts, then make the plan and the chunks
  pass.borrow();  // copy the weights that the plan moves
  while (pass.next_chunk()) {
    pass.dispatch();     // send rows to the ranks that compute them
    pass.run_experts();  // compute native and borrowed experts
    pass.combine();      // send results back, sum them per token
  }
  pass.give_back();
}

template <class Pass>
void run_backward(Pass& pass) {
  pass.open();  // prepare the gradients' destinations
  while (pass.next_chunk()) {
    pass.dispatch();     // send rows that forward did not keep, and gradients of results
    pass.run_experts();  // compute gradients of rows, router weights and expert weights
    pass.combine();      // send row gradients back, sum them per token
  }
  pass.return_gradients();  // send gradients of borrowed weights to the owners
}

}  // namespace evenkeel::internal
