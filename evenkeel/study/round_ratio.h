// A step's time to another's of the same round, over all rounds.
#pragma once

#include <vector>

namespace evenkeel {

struct RoundRatio {
  double median = 1;
  double spread = 0;  // of rounds: half the distance from the 10th to the 90th percentile
  // Two rounds, between which the median of ever more rounds would lie with a confidence of 95 % at least;
  // the least and the greatest where there are fewer than six, with less.
  double low = 1;
  double high = 1;
};

// Of one ratio a round, ascending; without any, as if all were 1.
RoundRatio round_ratio(const std::vector<double>& ascending);

// Of ascending values; 0 <= share <= 1, between neighbours by interpolation.
double quantile(const std::vector<double>& ascending, double share);

}  // namespace evenkeel
