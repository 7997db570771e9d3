// How many redundant experts: where more of them begin to buy little.
//
// Problem     copies cost memory on every rank, and each further one levels less. Of the numbers that give
//             every rank equally many slots, as servers' formats need: the knee of max/mean against copies.
// Method      place() for each number, from none on, until ranks are level (1 part in 100) or there is a copy
//             of every expert; then the number furthest below the straight line from the first to the last,
//             both axes scaled to 1 (Satopaa et al., "Finding a Kneedle in a Haystack", 2011).
// Time        one limit for all: a number gets an equal share of what is left. In the end the knee gets
//             all that is left, unless its share was enough for it.
// Cost        that of so many placements, at most kMostTried.
// Guarantee   the numbers tried and what each reaches are all told; the choice depends on the input alone,
//             unless the time limit is reached.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/place.h"

namespace evenkeel {

struct CopyChoice {
  struct Tried {
    int redundant_experts = 0;
    double max_over_mean = 1;  // mean of layers; of several recordings the worst one's
    double slots = 1;          // of what experts take without copies: 1.125 is an eighth more memory
  };
  static constexpr int kMostTried = 9;

  std::vector<Tried> tried;
  int redundant_experts = 0;  // the knee
  PlaceResult placed;         // with so many; its solve_ms is of all that were tried
};

// options.redundant_experts has no part. Throws as place() does.
CopyChoice choose_copies(std::span<const RoutingProfile> recordings, const Topology& topology,
                         const PlaceOptions& options);

}  // namespace evenkeel
