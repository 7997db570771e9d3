// Chooses the number of redundant experts: the point beyond which more copies gain little.
//
// Problem     copies cost memory on every rank, and each further copy lowers max/mean less. The answer is the
//             knee of the curve of max/mean against the number of copies. Only numbers that give every rank
//             equally many slots are tried, as servers' formats need.
// Method      place() for each number, from the smallest up, until ranks are level (1 part in 100) or every
//             expert has a copy. The knee is then the number furthest below the straight line from first to
//             last, both axes scaled to 1 (Satopaa et al., "Finding a Kneedle in a Haystack", 2011).
// Time        one limit for all: each number gets an equal share of what is left. At the end the knee is
//             placed again with all the time that is left, unless its share was enough.
// Cost        one placement per number tried, at most kMostTried.
// Guarantee   all numbers tried are returned, with the max/mean of each. The choice depends on the input
//             alone, unless the time limit is reached.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/place.h"

namespace evenkeel {

struct CopyChoice {
  struct Tried {
    int redundant_experts = 0;
    double max_over_mean = 1;  // mean over layers; the worst recording's, if several
    double slots = 1;          // relative to the slots without copies: 1.125 is an eighth more memory
  };
  static constexpr int kMostTried = 9;

  std::vector<Tried> tried;
  int redundant_experts = 0;  // the knee
  PlaceResult placed;         // with that many copies; solve_ms covers all tries
};

// Ignores options.redundant_experts. Throws as place() does.
CopyChoice choose_copies(std::span<const RoutingProfile> recordings, const Topology& topology,
                         const PlaceOptions& options);

}  // namespace evenkeel
