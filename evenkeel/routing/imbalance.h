// How uneven loads are, in the three measures that different communities use.
#pragma once

#include <cstdint>
#include <span>

namespace evenkeel {

// Perfectly even loads give {1, 1, 0}. Empty loads and loads that are all zero do too, because no rank waits.
struct Imbalance {
  double max_over_mean = 1;
  double mean_over_max = 1;
  double relative_excess = 0;  // (max - mean) / mean

  friend bool operator==(const Imbalance&, const Imbalance&) = default;
};

// Measures loads of experts or of ranks. Throws InvalidArgument if a load is negative.
Imbalance imbalance(std::span<const std::int64_t> loads);

}  // namespace evenkeel
