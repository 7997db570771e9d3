// Parses and formats sizes such as "512MiB", "1.5 GiB" and "20 GB", and rounds sizes up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace evenkeel {

// The least multiple of `unit` that is at least `number`.
template <class Integer>
constexpr Integer round_up(Integer number, std::type_identity_t<Integer> unit) {
  return (number + unit - 1) / unit * unit;
}

// Rounds up to whole cache lines, so that the next buffer begins on a cache line.
inline constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t whole_lines(std::int64_t bytes) {
  return round_up(bytes, kCacheLine);
}

// Reads a non-negative number with an optional unit: B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB,
// TiB (powers of 1024); no unit means bytes. Throws InvalidArgument, naming `what`.
std::int64_t parse_bytes(std::string_view text, std::string_view what);

// Writes bytes with the largest binary unit that keeps the number at least 1: "61.2 MiB".
std::string format_bytes(std::int64_t bytes);
// As format_bytes(), but rounded up: for a size that must be enough.
std::string format_bytes_up(std::int64_t bytes);

}  // namespace evenkeel
