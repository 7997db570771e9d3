// How uneven loads are, said the three ways that readers of different communities expect.
#pragma once

#include <cstdint>
#include <span>

namespace evenkeel {

// Perfectly even loads have {1, 1, 0}; so have no loads at all and loads that are all zero, since nobody
// waits for anybody.
struct Imbalance {
  double max_over_mean = 1;
  double mean_over_max = 1;
  double relative_excess = 0;  // (max - mean) / mean

  friend bool operator==(const Imbalance&, const Imbalance&) = default;
};

// Loads of experts or of ranks. Throws InvalidArgument if one is negative.
Imbalance imbalance(std::span<const std::int64_t> loads);

}  // namespace evenkeel
