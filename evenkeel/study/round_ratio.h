// The ratio of one step's time to another's in the same round, over all rounds.
#pragma once

#include <vector>

namespace evenkeel {

struct RoundRatio {
  double median = 1;
  double spread = 0;  // half the distance from the 10th to the 90th percentile of rounds
  // Bounds of the median at a confidence of at least 95 %, each the ratio of one round. With fewer than six
  // rounds, the least and the greatest ratio, at a lower confidence.
  double low = 1;
  double high = 1;
};

// `ascending` has one ratio per round, sorted. If it is empty, all results are as for ratios of 1.
RoundRatio round_ratio(const std::vector<double>& ascending);

// Quantile of sorted values, interpolated between neighbours; 0 <= share <= 1.
double quantile(const std::vector<double>& ascending, double share);

}  // namespace evenkeel
