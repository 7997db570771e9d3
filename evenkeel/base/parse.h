// Parses numbers as people type them. Errors are InvalidArgument about `argument`: they quote the text and
// say what is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

inline constexpr std::int64_t kAnySize = std::numeric_limits<std::int64_t>::max();

// A whole number in least..most.
std::int64_t parse_whole(const std::string& argument, std::string_view text, std::int64_t least,
                         std::int64_t most);
// A finite number in [least, below).
double parse_number(const std::string& argument, std::string_view text, double least, double below);
// A decimal with at most three places, kept in thousandths without rounding.
std::int64_t parse_thousandths(const std::string& argument, std::string_view text, std::int64_t least);
// 1250 gives "1.25", 1000 gives "1.0".
std::string format_thousandths(std::int64_t thousandths);

struct NamedNumber {
  std::string_view name;
  std::int64_t* number;
  std::int64_t least = 1;
};
// Parses "tp=2,pp=4": numbers by name, each at most once. Returns the names that were given.
std::vector<std::string> parse_named(const std::string& argument, std::string_view text,
                                     std::span<const NamedNumber> numbers, std::int64_t most);

// The index of `text` in `words`. Throws InvalidArgument if it is not there.
std::size_t parse_word(const std::string& argument, const std::string& text,
                       const std::vector<std::string>& words);
std::vector<std::string> split(std::string_view text, char separator);
// The candidate that `word` was probably meant to be: one that starts with `word`, or differs from it by few
// typing errors. Empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace evenkeel
