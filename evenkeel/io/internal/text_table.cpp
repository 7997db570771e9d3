// Splits a text table into lines and cells.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "evenkeel/base/error.h"
#include "evenkeel/base/stop.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/table.h"

namespace evenkeel::internal {

namespace {

constexpr std::string_view blanks = " \t";
constexpr std::string_view line_ends = "\r\n";

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

std::string_view take_line(std::string_view& rest) {
  const std::string_view line = rest.substr(0, rest.find_first_of(line_ends));
  rest.remove_prefix(line.size());
  rest.remove_prefix(rest.starts_with("\r\n") ? 2 : std::min<std::size_t>(rest.size(), 1));
  return line;
}

bool begins_like_number(std::string_view text) {
  return !text.empty() && (std::string_view("+-.").find(text.front()) != std::string_view::npos ||
                           (text.front() >= '0' && text.front() <= '9'));
}

// A spreadsheet's error cells also begin with #; they are not comments.
bool is_comment(std::string_view line) {
  if (!line.starts_with('#')) return false;
  return std::ranges::none_of(std::initializer_list<std::string_view>{"#N/A", "#REF!", "#DIV/0!", "#VALUE!",
                                                                      "#NAME?", "#NUM!", "#NULL!"},
                              [&](std::string_view error) { return line.starts_with(error); });
}

// A tab next to a comma counts as space.
char separator_of(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = trim(take_line(text));
    const auto has = [&](std::string_view part) { return line.find(part) != std::string_view::npos; };
    if (line.empty() || is_comment(line)) continue;
    if (has(";")) return ';';
    if (has("\t") && !has(",\t") && !has("\t,")) return '\t';
    return has(",") ? ',' : ' ';
  }
  return ',';
}

}  // namespace

bool begins_like_table(std::string_view head) {
  while (!head.empty()) {
    const std::string_view line = trim(take_line(head));
    if (line.empty()) continue;
    if (line.front() == '#' || begins_like_number(line)) return true;
    if (line.find_first_of(",;\t") != std::string_view::npos) return true;
    // A line of names separated by spaces, then a line of numbers.
    return line.find(' ') != std::string_view::npos && begins_like_number(trim(take_line(head)));
  }
  return false;
}

std::optional<TableNumber> number_of_text(std::string_view text) {
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-' && text[1] != '+') text.remove_prefix(1);
  TableNumber number;
  const char* end = text.data() + text.size();
  if (const auto [at, error] = std::from_chars(text.data(), end, number.whole);
      error == std::errc() && at == end) {
    number.real = static_cast<double>(number.whole);
    return number;
  }
  const auto [at, error] = std::from_chars(text.data(), end, number.real);
  if (error != std::errc() || at != end || !std::isfinite(number.real)) return std::nullopt;
  number.is_whole = std::abs(number.real) <= 0x1p53 && number.real == std::floor(number.real);
  number.whole = number.is_whole ? static_cast<std::int64_t>(number.real) : 0;
  return number;
}

TextTable::TextTable(std::string_view text, std::string file)
    : file_(std::move(file)), rest_(text), separator_(separator_of(text)) {}

bool TextTable::next(Cells& cells) {
  comment_ = {};
  while (!rest_.empty()) {
    stop_if_asked();
    const std::string_view line = take_line(rest_);
    ++number_;
    const std::string_view text = trim(line);
    if (is_comment(text)) {
      comment_ = trim(text.substr(1));
    } else if (!text.empty()) {
      cells = split(line);
      return true;
    }
  }
  return false;
}

Cells TextTable::comment_before() const {
  return split(comment_);
}

Cells TextTable::split(std::string_view line) const {
  Cells cells;
  const std::string_view ends = separator_ == ' ' ? blanks : std::string_view(&separator_, 1);
  std::string_view rest = separator_ == '\t' ? line : trim(line);
  while (true) {
    if (separator_ != '\t') rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    std::optional<std::string_view> quoted;
    if (rest.starts_with('"')) {
      const std::size_t close = rest.find('"', 1);
      if (close == std::string_view::npos)
        throw ParseError(file_, fmt::format("line {}", number_), "has a quote that is not closed");
      quoted = trim(rest.substr(1, close - 1));
      rest.remove_prefix(close + 1);
    }
    const std::size_t end = rest.find_first_of(ends);
    const std::string_view plain = trim(rest.substr(0, end));
    if (quoted && !plain.empty())
      throw parse_error(file_, fmt::format("line {}, column {}", number_, cells.size() + 1),
                        "has '{}' after its closing quote", plain);
    cells.push_back(quoted.value_or(plain));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  if (cells.size() > 1 && cells.back().empty()) cells.pop_back();
  return cells;
}

}  // namespace evenkeel::internal
