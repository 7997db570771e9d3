// The order in which a rank submits a step to its stream, and the barriers of all ranks' streams; separate
// from the launches themselves.
//
// Correctness   Data that another rank reads is written before a barrier that both pass, and overwritten only
//               after a later barrier. The tensors of a call, the counts and the outboxes are written before
//               the barrier that follows deal(). Results are written before the barrier that follows
//               run_experts(). combine() still reads a chunk's outboxes while other ranks deal the next
//               chunk, so two outboxes alternate.
// Rounds        Each round runs the experts whose borrowed weights are in the slots. In the step's first
//               chunk the first round's weights are copied in parallel with the tokens; in later chunks they
//               are already in the slots.
#pragma once

#include "evenkeel/exchange/cuda/weight_copies.h"
#include "evenkeel/layer/internal/step_sequence.h"

namespace evenkeel::cuda {

// A pass for layer/internal/step_sequence.h, made of launches.
template <class Launches>
class OrderedPass {
 public:
  OrderedPass(Launches& step, int chunks, int rounds) : step_(step), chunks_(chunks), rounds_(rounds) {}

  void plan() {
    step_.publish();
    step_.count();
    step_.sync();
    step_.plan();
  }
  void open() {
    step_.publish();
    step_.sync();
    step_.clear();
    borrow();
  }
  void borrow() { step_.borrow_beside(); }
  bool next_chunk() { return ++chunk_ < chunks_; }
  void dispatch() {
    step_.deal(chunk_);
    step_.sync();
    step_.receive(chunk_);
  }
  void run_experts() {
    for (int i = 0; i < rounds_; ++i) {
      const int round = round_at(chunk_, i, rounds_);
      if (i > 0) step_.borrow(round);
      step_.run_experts(round);
    }
    step_.sync();
  }
  void combine() { step_.combine(chunk_); }
  void give_back() {}  // nothing to free: the next step overwrites the slots
  void return_gradients() { step_.return_gradients(); }

 private:
  Launches& step_;
  int chunks_;
  int rounds_;
  int chunk_ = -1;
};

template <class Launches>
void order_forward(Launches& step, int chunks, int rounds) {
  OrderedPass pass(step, chunks, rounds);
  evenkeel::internal::run_forward(pass);
}

template <class Launches>
void order_backward(Launches& step, int chunks, int rounds) {
  OrderedPass pass(step, chunks, rounds);
  evenkeel::internal::run_backward(pass);
}

}  // namespace evenkeel::cuda
