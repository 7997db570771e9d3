#include "evenkeel/base/parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <ranges>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

std::string range(std::int64_t least, std::int64_t most) {
  return most == kAnySize ? fmt::format("a whole number, {} or more", least)
                          : fmt::format("a whole number in {}..{}", least, most);
}

constexpr std::size_t kLongestWord = 64;  // bounds the edit distance, which takes quadratic time

std::string lower(std::string_view word) {
  std::string text(word);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Edit distance that counts missing, extra, wrong and swapped adjacent letters (optimal string alignment).
std::size_t typing_errors(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last.back();
}

}  // namespace

std::int64_t parse_whole(const std::string& argument, std::string_view text, std::int64_t least,
                         std::int64_t most) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most)
    throw InvalidArgument(argument, fmt::format("'{}'", text), range(least, most));
  return value;
}

std::int64_t parse_thousandths(const std::string& argument, std::string_view text, std::int64_t least) {
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view places = point == std::string_view::npos ? "" : text.substr(point + 1);
  const auto digits = [](std::string_view part) {
    return std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
  };
  const std::string allowed =
      fmt::format("{} or more, with at most three decimals, such as 1.25", format_thousandths(least));
  const bool well_formed = !whole.empty() && whole.size() <= 12 && places.size() <= 3 && digits(whole) &&
                           digits(places) && (point == std::string_view::npos || !places.empty());
  if (!well_formed) throw InvalidArgument(argument, fmt::format("'{}'", text), allowed);
  const std::int64_t value =
      std::stoll(std::string(whole)) * 1000 + std::stoll((std::string(places) + "000").substr(0, 3));
  if (value < least) throw InvalidArgument(argument, fmt::format("'{}'", text), allowed);
  return value;
}

std::string format_thousandths(std::int64_t thousandths) {
  std::string text = fmt::format("{}.{:03}", thousandths / 1000, thousandths % 1000);
  while (text.ends_with('0') && !text.ends_with(".0")) text.pop_back();
  return text;
}

double parse_number(const std::string& argument, std::string_view text, double least, double below) {
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || !(number >= least && number < below))
    throw InvalidArgument(argument, fmt::format("'{}'", text),
                          std::isfinite(below)
                              ? fmt::format("a number, {} or more and below {}", least, below)
                              : fmt::format("a number, {} or more", least));
  return number;
}

std::vector<std::string> parse_named(const std::string& argument, std::string_view text,
                                     std::span<const NamedNumber> numbers, std::int64_t most) {
  std::vector<std::string> given;
  for (const std::string& part : split(text, ',')) {
    const std::size_t sign = part.find('=');
    const std::string name = part.substr(0, sign);
    const auto known = std::ranges::find(numbers, name, &NamedNumber::name);
    if (known == numbers.end() || sign == std::string::npos)
      throw InvalidArgument(
          argument, fmt::format("'{}'", part),
          fmt::format("{}=N", fmt::join(numbers | std::views::transform(&NamedNumber::name), "=N, ")));
    if (std::ranges::find(given, name) != given.end())
      throw InvalidArgument(argument, fmt::format("'{}' twice", name), "each once");
    given.push_back(name);
    *known->number = parse_whole(argument, std::string_view(part).substr(sign + 1), known->least, most);
  }
  return given;
}

std::size_t parse_word(const std::string& argument, const std::string& text,
                       const std::vector<std::string>& words) {
  const auto found = std::ranges::find(words, text);
  if (found == words.end())
    throw InvalidArgument(argument, fmt::format("'{}'", text), fmt::format("{}", fmt::join(words, ", ")));
  return static_cast<std::size_t>(found - words.begin());
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at; (at = text.find(separator)) != std::string_view::npos; text.remove_prefix(at + 1))
    parts.emplace_back(text.substr(0, at));
  parts.emplace_back(text);
  return parts;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kLongestWord) return "";
  const std::string typed = lower(word);
  const std::size_t most = std::clamp<std::size_t>(typed.size() / 3, 1, 3);
  std::string found;
  std::size_t least = most + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const bool begun = typed.size() >= 3 && candidate.starts_with(typed);
    const std::size_t far = begun ? 1 : typing_errors(typed, lower(candidate));
    if (far < least && far < candidate.size()) {
      least = far;
      found = candidate;
    }
  }
  return found;
}

}  // namespace evenkeel
