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

namespace evenkeel::cuda {

template <class Launches>
void order_chunks(Launches& step, int chunks, int rounds) {
  step.borrow_beside();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    step.deal(chunk);
    step.sync();
    step.receive(chunk);
    for (int i = 0; i < rounds; ++i) {
      const int round = round_at(chunk, i, rounds);
      if (i > 0) step.borrow(round);
      step.run_experts(round);
    }
    step.sync();
    step.combine(chunk);
  }
}

template <class Launches>
void order_forward(Launches& step, int chunks, int rounds) {
  step.publish();
  step.count();
  step.sync();
  step.plan();
  order_chunks(step, chunks, rounds);
}

template <class Launches>
void order_backward(Launches& step, int chunks, int rounds) {
  step.publish();
  step.sync();
  step.clear();
  order_chunks(step, chunks, rounds);
  step.return_gradients();
}

}  // namespace evenkeel::cuda
