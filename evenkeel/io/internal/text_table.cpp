#include "evenkeel/io/internal/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "evenkeel/base/error.h"
#include "evenkeel/base/stop.h"
#include "evenkeel/io/internal/parse_error.h"

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

// A tab beside a comma is only space.
bool has_tab_alone(std::string_view line) {
  for (std::size_t at = line.find('\t'); at != std::string_view::npos; at = line.find('\t', at + 1)) {
    const std::string_view before = trim(line.substr(0, at));
    const std::string_view after = trim(line.substr(at));
    if (!before.ends_with(',') && !after.starts_with(',')) return true;
  }
  return false;
}

// Cells that a spreadsheet could not compute begin with a # too.
bool is_comment(std::string_view line) {
  if (!line.starts_with('#')) return false;
  return std::ranges::none_of(std::initializer_list<std::string_view>{"#N/A", "#REF!", "#DIV/0!", "#VALUE!",
                                                                      "#NAME?", "#NUM!", "#NULL!"},
                              [&](std::string_view error) { return line.starts_with(error); });
}

}  // namespace

bool begins_like_table(std::string_view head) {
  const auto is_text = [](char c) {
    return static_cast<unsigned char>(c) >= ' ' || blanks.find(c) != std::string_view::npos ||
           line_ends.find(c) != std::string_view::npos;
  };
  if (!std::all_of(head.begin(), head.end(), is_text)) return false;
  while (!head.empty()) {
    const std::string_view line = trim(take_line(head));
    if (line.empty()) continue;
    if (line.front() == '#' || begins_like_number(line)) return true;
    if (line.find_first_of(",;\t") != std::string_view::npos) return true;
    // Names between spaces, and then numbers.
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

std::string not_a_number(std::string_view text) {
  if (text.find(',') != std::string_view::npos &&
      text.find_first_not_of("0123456789,.+-") == std::string_view::npos)
    return fmt::format("'{}' has a comma; write decimals with a point, and thousands without a mark", text);
  return fmt::format("'{}' is not a number", text);
}

TextTable::TextTable(std::string_view text, std::string file) : file_(std::move(file)), rest_(text) {
  separator_ = separator_of(text);
}

char TextTable::separator_of(std::string_view text) const {
  while (!text.empty()) {
    const std::string_view line = trim(take_line(text));
    if (line.empty() || is_comment(line)) continue;
    if (line.find(';') != std::string_view::npos) return ';';
    if (has_tab_alone(line)) return '\t';
    return line.find(',') != std::string_view::npos ? ',' : ' ';
  }
  return ',';
}

bool TextTable::next_line(std::string_view& line) {
  comment_ = {};
  while (!rest_.empty()) {
    stop_if_asked();
    line = take_line(rest_);
    ++number_;
    const std::string_view text = trim(line);
    if (is_comment(text)) {
      comment_ = trim(text.substr(1));
    } else if (!text.empty()) {
      return true;
    }
  }
  return false;
}

bool TextTable::next(std::vector<std::string_view>& cells) {
  std::string_view line;
  if (!next_line(line)) return false;
  unescaped_.clear();
  split(line, cells);
  return true;
}

std::vector<std::string_view> TextTable::cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  split(line, cells);
  return cells;
}

// The text between the quotes that `rest` begins with, which are taken away with it.
std::string_view TextTable::quoted(std::string_view& rest) {
  std::string text;
  rest.remove_prefix(1);
  while (true) {
    const std::size_t end = rest.find('"');
    if (end == std::string_view::npos)
      throw ParseError(file_, fmt::format("line {}", number_), "has a quote that is not closed");
    text += rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (!rest.starts_with('"')) break;
    text += '"';
    rest.remove_prefix(1);
  }
  return unescaped_.emplace_back(std::move(text));
}

void TextTable::split(std::string_view line, std::vector<std::string_view>& cells) {
  cells.clear();
  const std::string_view ends = separator_ == ' ' ? blanks : std::string_view(&separator_, 1);
  std::string_view rest = separator_ == '\t' ? line : trim(line);
  while (true) {
    if (separator_ != '\t') rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    std::string_view cell;
    if (rest.starts_with('"')) {
      cell = trim(quoted(rest));
      const std::string_view behind = trim(rest.substr(0, rest.find_first_of(ends)));
      if (!behind.empty())
        throw parse_error(file_, fmt::format("line {}, column {}", number_, cells.size() + 1),
                          "has '{}' behind its closing quote", behind);
    } else {
      cell = trim(rest.substr(0, rest.find_first_of(ends)));
    }
    cells.push_back(cell);
    const std::size_t end = rest.find_first_of(ends);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  if (cells.size() > 1 && cells.back().empty()) cells.pop_back();
}

}  // namespace evenkeel::internal
