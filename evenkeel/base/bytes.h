// Sizes as people write and read them, "512MiB", "1.5 GiB", "20 GB", and rounded to what memory comes in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace evenkeel {

// The least multiple of `unit` that is not below a number.
template <class Integer>
constexpr Integer round_up(Integer number, std::type_identity_t<Integer> unit) {
  return (number + unit - 1) / unit * unit;
}

// Whole cache lines, so that what lies behind begins on one.
inline constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t whole_lines(std::int64_t bytes) {
  return round_up(bytes, kCacheLine);
}

// Reads a non-negative number with an optional unit: B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB,
// TiB (powers of 1024); no unit means bytes. Throws InvalidArgument, naming `what`.
std::int64_t parse_bytes(std::string_view text, std::string_view what);

// Writes bytes with the largest binary unit that keeps the number at least 1: "61.2 MiB".
std::string format_bytes(std::int64_t bytes);
// Rounded up, for a size that must be enough.
std::string format_bytes_up(std::int64_t bytes);

}  // namespace evenkeel
