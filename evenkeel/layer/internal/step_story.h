// The story of a step, the same on every device: forward and backward as the calls that they are made of.
//
// A pass is one of the two on one rank: layer/cpu/ and layer/cuda/ have one of each. All calls are
// collective.
#pragma once

namespace evenkeel::internal {

template <class Pass>
void run_forward(Pass& pass) {
  pass.agree();   // counts gathered, the plan made of them, and the chunks
  pass.borrow();  // the weights that the plan moves
  while (pass.next_chunk()) {
    pass.dispatch();     // rows to the ranks that compute them
    pass.run_experts();  // those at home and those borrowed
    pass.combine();      // results home, and each token's sum
  }
  pass.give_back();
}

template <class Pass>
void run_backward(Pass& pass) {
  pass.open();  // where gradients go
  while (pass.next_chunk()) {
    pass.dispatch();     // rows that forward did not keep, and gradients of results
    pass.run_experts();  // their gradients: of rows, of router weights, of weights
    pass.combine();      // gradients of rows home, and each token's sum
  }
  pass.return_gradients();  // of borrowed weights, to their owners
}

}  // namespace evenkeel::internal
