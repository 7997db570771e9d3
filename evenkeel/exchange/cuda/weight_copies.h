// When to send which borrowed weights if a rank borrows more experts than it has slots for.
//
// Problem    In each chunk a rank computes with n borrowed experts but has only k = borrow_slots
//            slots. Borrowed expert b uses slot b mod k in round b / k; each chunk goes through all rounds.
// Method     Chunks alternate between ascending and descending rounds. So a chunk begins with the round that
//            the previous chunk ended with, and weights still in their slot are not sent again.
// Cost       O(rounds) per slot. Every rank and the host compute the same result without communication.
// Guarantee  n + (chunks - 1) max(0, n - k) weight copies per pass. This is the minimum if each chunk needs
//            all n: a chunk finds at most k of them in the slots.
#pragma once

#include <cstdint>

#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel::cuda {

// The i-th round of a chunk.
EVENKEEL_HOST_DEVICE constexpr int round_at(int chunk, int i, int rounds) {
  return chunk % 2 == 0 ? i : rounds - 1 - i;
}

// Whether the expert in `slot` in `round` must be sent before the chunk computes with it.
EVENKEEL_HOST_DEVICE inline bool is_sent(const RouteShape& shape, const StepView& step, int chunk, int round,
                                         int slot) {
  const auto is_borrowed = [&](int r) { return step.borrowed_expert[r * shape.borrow_slots + slot] >= 0; };
  if (chunk >= *step.num_chunks || !is_borrowed(round)) return false;
  if (chunk == 0) return true;
  const bool is_last = round == shape.borrow_rounds - 1 || !is_borrowed(round + 1);
  return chunk % 2 == 0 ? round != 0 : !is_last;
}

// The number of weight copies that a rank receives in one pass over a step.
constexpr std::int64_t weight_copies(std::int64_t borrowed, std::int64_t slots, std::int64_t chunks) {
  return borrowed + (chunks - 1) * (borrowed > slots ? borrowed - slots : 0);
}

}  // namespace evenkeel::cuda
