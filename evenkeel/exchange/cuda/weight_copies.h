// Which borrowed weights are sent before which part of a step, where fewer fit than are borrowed.
//
// Problem    A rank computes, chunk by chunk, with n borrowed experts and has k places for them. Expert b of
//            them has place b mod k, in round b / k; each chunk goes through all rounds.
// Method     Chunks go through the rounds forwards and backwards by turns: a chunk begins with what the one
//            before ended with, and a weight that still lies in its place is not sent.
// Cost       O(rounds) for a place; every rank and the host find the same without a word.
// Guarantee  n + (chunks - 1) max(0, n - k) weight copies a pass. There cannot be fewer where each chunk
//            needs all n: it finds k of them at most.
#pragma once

#include <cstdint>

#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel::cuda {

// The i-th round that a chunk goes through.
EVENKEEL_HOST_DEVICE constexpr int round_at(int chunk, int i, int rounds) {
  return chunk % 2 == 0 ? i : rounds - 1 - i;
}

// Whether the expert of `place` in `round` is sent before the chunk computes with it.
EVENKEEL_HOST_DEVICE inline bool is_sent(const RouteShape& shape, const StepView& step, int chunk, int round,
                                         int place) {
  const auto is_borrowed = [&](int r) { return step.borrowed_expert[r * shape.places + place] >= 0; };
  if (chunk >= *step.num_chunks || !is_borrowed(round)) return false;
  if (chunk == 0) return true;
  const bool is_last = round == shape.rounds - 1 || !is_borrowed(round + 1);
  return chunk % 2 == 0 ? round != 0 : !is_last;
}

// All weight copies that a rank is sent in one pass over a step.
constexpr std::int64_t weight_copies(std::int64_t borrowed, std::int64_t places, std::int64_t chunks) {
  return borrowed + (chunks - 1) * (borrowed > places ? borrowed - places : 0);
}

}  // namespace evenkeel::cuda
