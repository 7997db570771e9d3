// Loads as integers: what the search for copies and ranks adds, compares and sorts, so that its decisions do
// not depend on how a machine rounds. The loads of a layer are multiplied by one number, so that they add up
// to nearly 2^39; whole numbers by a whole one, so that what is equal stays equal. Fractions are cut off:
// what is never below a number of these is never below it in the caller's loads either.
#pragma once

#include <cstdint>
#include <span>

namespace evenkeel {

using FixedLoad = std::int64_t;

constexpr int kFixedTotalBits = 39;
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

// The factor that the caller's loads are multiplied by; 0 where they are all 0.
double fixed_scale(double total);
void to_fixed(std::span<const double> loads, double scale, std::span<FixedLoad> fixed);

// The load of one of `copies` copies.
constexpr FixedLoad copy_load(FixedLoad load, std::int32_t copies) {
  return load / copies;
}

}  // namespace evenkeel
