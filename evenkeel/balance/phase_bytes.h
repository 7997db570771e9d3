// Bytes that a chunk takes on the rank that needs the most, where each chunk is planned as a step of its own.
//
// Method     A chunk passes through phases, each linear in what its plan has every rank send, receive,
// compute,
//            borrow and lend; the most demanding phase counts.
// Source     Fine-grained chunk distribution: MemFine (arXiv 2511.21431), Eq. 6 and 7.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// A rank's part of a chunk.
struct RankPart {
  std::int64_t tokens = 0;       // of this rank's
  std::int64_t assignments = 0;  // of these tokens
  std::int64_t sent = 0;         // positions to other ranks
  std::int64_t received = 0;     // positions from other ranks
  std::int64_t positions = 0;    // computed here
  std::int64_t borrowed = 0;     // experts
  std::int64_t lent = 0;         // experts, once for each rank that borrows it
};

// Bytes that one token, assignment, position or expert takes on its rank in one phase of a chunk.
struct PhaseBytes {
  std::int64_t per_token = 0, per_assignment = 0, per_sent = 0, per_received = 0, per_position = 0,
               per_borrowed = 0, per_lent = 0, fixed = 0;

  std::int64_t of(const RankPart& part) const;
};

// Bytes that a chunk takes on the rank that needs the most; `tokens` by rank.
std::int64_t most_bytes(const Counts& counts, const StepPlan& plan, std::span<const std::int64_t> tokens,
                        std::span<const PhaseBytes> phases);

// The end of the longest run from `first` for which fits(end) holds, as far as halving finds it; `first`
// where not even one block fits.
template <class Fits>
int longest(int first, int blocks, const Fits& fits) {
  if (fits(blocks)) return blocks;
  int good = first, bad = blocks;
  while (bad - good > 1) {
    const int middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace evenkeel
