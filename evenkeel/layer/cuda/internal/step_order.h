// The order in which a rank hands a step to its stream, and where all ranks' streams meet; apart from the
// launches themselves.
//
// Why it holds  What a rank reads of another was written before a barrier that both passed, and is written
//               again only after a later one: the tensors of a call, counts and outboxes before the barrier
//               that follows deal(), results before the one that follows run_experts(). combine() of a chunk
//               still reads outboxes while others deal the next, so that these take turns.
// Rounds        Of a chunk's experts, as many at a time as there are places for what is borrowed. The first
//               round of a step is sent its weights beside the tokens, of a later chunk it has them.
#pragma once

#include "evenkeel/exchange/cuda/weight_copies.h"
#include "evenkeel/layer/internal/step_story.h"

namespace evenkeel::cuda {

// A pass as layer/internal/step_story.h tells it, made of launches.
template <class Launches>
class OrderedPass {
 public:
  OrderedPass(Launches& step, int chunks, int rounds) : step_(step), chunks_(chunks), rounds_(rounds) {}

  void agree() {
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
  void give_back() {}  // slots are filled anew
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
