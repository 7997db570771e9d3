// The order in which a rank hands a step to its stream, and where all ranks' streams meet; apart from the
// launches themselves.
//
// Why it holds  What a rank reads of another was written before a meeting that both passed, and is written
//               again only after a later one: the tensors of a call, counts and outboxes before the meeting
//               that follows deal(), results before the one that follows run_experts(). combine() of a chunk
//               still reads outboxes while others deal the next, so that these take turns.
#pragma once

namespace evenkeel::cuda {

template <class Launches>
void order_chunks(Launches& step, int chunks) {
  for (int chunk = 0; chunk < chunks; ++chunk) {
    step.deal(chunk);
    step.meet();
    step.receive(chunk);
    step.run_experts(chunk);
    step.meet();
    step.combine(chunk);
  }
}

template <class Launches>
void order_forward(Launches& step, int chunks) {
  step.publish();
  step.count();
  step.meet();
  step.plan();
  order_chunks(step, chunks);
}

template <class Launches>
void order_backward(Launches& step, int chunks) {
  step.publish();
  step.meet();
  step.clear();
  order_chunks(step, chunks);
  step.return_gradients();
}

}  // namespace evenkeel::cuda
