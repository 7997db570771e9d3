// Loads that are not whole numbers, such as moving averages of counts or shares of a total. Loads are int64
// throughout the library, and of averages only the ratios mean anything, so all values of a file are
// multiplied by one power of two and rounded.
//
// Guarantee   Whole numbers stay as they are. Others stay exact where a power of two makes all of them whole
//             with a total of at most 2^52; else each is off by at most 2^-52 of the total. What is above 0
//             stays above 0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace evenkeel::internal {

struct ScaledLoads {
  std::vector<std::int64_t> loads;  // the values times 2^exponent
  int exponent = 0;                 // 0: as they were
  // Says so in the notes of a file, where they were scaled.
  void note_in(std::vector<std::string>& notes) const;
};

// Throws ParseError, with `key` and the element's place, if a value is negative, infinite or NaN, or if all
// together are above 2^63-1.
ScaledLoads scaled_loads(std::span<const double> values, const std::string& file, const std::string& key);

}  // namespace evenkeel::internal
