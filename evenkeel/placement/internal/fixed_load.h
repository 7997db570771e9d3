// Loads as integers: what the search for copies and ranks adds, compares and sorts, so that its decisions do
// not depend on how a machine rounds. The loads of one layer are scaled to a total of 2^39, so a rank's load
// is known to within a few parts in 2^39 of the layer's; what is reported is computed from the caller's
// loads.
#pragma once

#include <cstdint>
#include <span>

namespace evenkeel {

using FixedLoad = std::int64_t;

constexpr int kFixedTotalBits = 39;
constexpr FixedLoad kFixedTotal = FixedLoad{1} << kFixedTotalBits;
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

// Scales loads to a total of kFixedTotal; all 0 stay 0.
void to_fixed(std::span<const double> loads, double total, std::span<FixedLoad> fixed);

// The load of one of `copies` copies.
constexpr FixedLoad copy_load(FixedLoad load, std::int32_t copies) {
  return (load + copies / 2) / copies;
}

}  // namespace evenkeel
