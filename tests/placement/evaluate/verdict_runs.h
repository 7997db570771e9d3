// Verdicts on synthetic routing from a known distribution. Each sequence prefers its own experts, as real
// sequences do.
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
  // With contiguous homes, the experts of rank 0 are this many times as popular as the mean.
  double max_over_mean = 1;
  // A sequence's shares of experts are drawn from a Dirichlet distribution; this is its parameter for an
  // expert of mean popularity. Infinity: sequences do not differ, only tokens.
  double concentration = std::numeric_limits<double>::infinity();
};

// Draws sequences of 500 tokens; if `tokens` is below 20 x 500, 20 shorter sequences.
Recording draw(const Truth& truth, std::int64_t tokens, std::uint64_t seed);
// Draws up to 200 steps with `tokens` in all, at least ten tokens per step.
Recording draw_steps(const Truth& truth, std::int64_t tokens, std::uint64_t seed);

// The verdict on a recording's own placement, judged on held-out parts of the recording. Moving costs almost
// nothing.
Verdict verdict_on_own(const Truth& truth, const Recording& recording);
// The verdict on the placement made from one recording, judged on another.
Verdict verdict_on_fresh(const Truth& truth, const Recording& made_from, const Recording& judge);

}  // namespace evenkeel::verdict_runs
