// Loads as integers, so that the search for copies and ranks makes the same decisions however a machine
// rounds. The loads of a layer are multiplied by one factor, so that they add up to nearly 2^39. A factor
// above 1 is a whole number, so that equal loads stay equal. Fractions are cut off: a lower bound on these
// integers is also a lower bound on the caller's loads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace evenkeel::internal {

using FixedLoad = std::int64_t;

constexpr int kFixedTotalBits = 39;
// The largest rounding error of a bound, relative to the bound.
constexpr double kBoundRounding = 1e-12;
// An index below 2^24 fits beside a load in one 64-bit key.
constexpr int kKeyIndexBits = 24;
constexpr std::int64_t kMostIndexed = std::int64_t{1} << kKeyIndexBits;

// Sorts descending by load, equal loads by ascending index.
constexpr std::uint64_t descending_key(FixedLoad load, std::int32_t index) {
  return (static_cast<std::uint64_t>(load) << kKeyIndexBits) |
         static_cast<std::uint64_t>(kMostIndexed - 1 - index);
}
constexpr std::int32_t index_of_key(std::uint64_t key) {
  return static_cast<std::int32_t>(kMostIndexed - 1 - static_cast<std::int64_t>(key & (kMostIndexed - 1)));
}

// The factor for the caller's loads; 0 if they are all 0.
inline double fixed_scale(double total) {
  if (total <= 0) return 0;
  const double scale = std::min(std::ldexp(1.0, kFixedTotalBits) / total, std::numeric_limits<double>::max());
  return scale >= 1 ? std::floor(scale) : scale;
}
inline void to_fixed(std::span<const double> loads, double scale, std::span<FixedLoad> fixed) {
  for (std::size_t i = 0; i < loads.size(); ++i) fixed[i] = static_cast<FixedLoad>(loads[i] * scale);
}

// The load of one of `copies` copies.
constexpr FixedLoad copy_load(FixedLoad load, std::int32_t copies) {
  return load / copies;
}

}  // namespace evenkeel::internal
