// A lower bound for a pool whose ranks have few slots: copies too large to stand j + 1 to a rank.
//
// If no rank is above x, a rank holds at most j copies above x / (j + 1). An expert of load w has at least
// ceil(w / x) copies; either all of them are above x / (j + 1), or there are ceil((j + 1) w / x) of them or
// more. With S slots, not all experts can be split that far: let as much of the large copies as must go be
// split, those first that need the fewest slots for each large copy, in fractions. If the slots do not
// suffice, nothing is at or below x.
//
// Without copies (as many slots as experts) also: the rank with the largest expert holds others beside it.
//
// Cost        a binary search over x for each j below the slots of a rank, each step E log E.
// Source      the fractional form of the bin-packing bounds of Martello and Toth (1990), with splitting.
#pragma once

#include <vector>

#include "evenkeel/placement/internal/pool/small_pool.h"

namespace evenkeel {

class SlotBound {
 public:
  // At least `low`, at most `high`, which a placement reaches.
  FixedLoad find(const Pool& pool, FixedLoad low, FixedLoad high);

 private:
  FixedLoad largest_with_company(const Pool& pool);
  bool possible(const Pool& pool, int per_rank, FixedLoad x);

  struct Split {
    double slots_per_copy = 0;  // further slots for each large copy that goes
    double large_copies = 0;
  };
  std::vector<Split> splits_;
  std::vector<FixedLoad> sorted_;
};

}  // namespace evenkeel
