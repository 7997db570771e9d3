// Verdicts on routing whose truth is known: drawn sequence by sequence, each with a taste of its own, as real
// ones have.
#pragma once

#include <cstdint>
#include <limits>

#include "evenkeel/placement/evaluate/verdict.h"

namespace evenkeel::verdict_runs {

struct Truth {
  int ranks = 8;
  int experts = 64;
  int layers = 1;
  int top_k = 8;
  // Of contiguous homes: the experts of rank 0 are this much more popular than the mean.
  double max_over_mean = 1;
  // Of the Dirichlet distribution that a sequence's experts are drawn from, for an expert of mean popularity.
  // Infinite: tokens alone differ.
  double concentration = std::numeric_limits<double>::infinity();
};

// Sequences of 500 tokens; of fewer tokens than 20 such sequences 20 shorter ones.
Recording draw(const Truth& truth, std::int64_t tokens, std::uint64_t seed);
// The same by steps: `tokens` over 200 of them, each of ten tokens or more.
Recording draw_steps(const Truth& truth, std::int64_t tokens, std::uint64_t seed);

// The verdict on the placement of a recording, which costs next to nothing to move to, by what was held out
// of it.
Verdict verdict_on_own(const Truth& truth, const Recording& recording);
// The verdict on the placement of one recording that another one gives.
Verdict verdict_on_fresh(const Truth& truth, const Recording& made_from, const Recording& judge);

}  // namespace evenkeel::verdict_runs
