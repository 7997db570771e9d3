// The ratio of one step's time to another step's time in the same round, summarized over all rounds.
#pragma once

#include <vector>

namespace evenkeel {

struct RoundRatio {
  double median = 1;
  double spread = 0;  // half the distance between the 10th and 90th percentiles of all rounds
  // Bounds of the median at a confidence of at least 95 %, each of which is the ratio of some round. With
  // fewer than six rounds, the bounds are the least and the greatest ratio, and the confidence is lower.
  double low = 1;
  double high = 1;
};

// `ascending` has one ratio for each round, sorted. If it is empty, the result is as for ratios of 1.
RoundRatio round_ratio(const std::vector<double>& ascending);

// The quantile `share` (0 <= share <= 1) of sorted values, interpolated between neighbours.
double quantile(const std::vector<double>& ascending, double share);

}  // namespace evenkeel
