#include "evenkeel/io/count_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/base/stop.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/moe_layers.h"
#include "evenkeel/io/internal/profile_json.h"
#include "evenkeel/io/internal/text.h"

namespace evenkeel {

namespace {

using internal::CountRows;
using internal::Json;

constexpr std::array<std::string_view, 6> names = {"counts",      "logical_count",     "expert_counts",
                                                   "expert_load", "tokens_per_expert", "weight"};
constexpr std::string_view separators = ",; \t\r";

// The numbers of one line of text.
class Cells {
 public:
  Cells(std::string_view line, const std::string& file, std::size_t number)
      : line_(line), file_(file), number_(number) {}

  bool next(std::string_view& cell) {
    const std::string_view gap = line_.substr(0, line_.find_first_not_of(separators));
    require_no_blank(gap);
    if (gap.size() == line_.size()) return false;
    line_.remove_prefix(gap.size());
    cell = line_.substr(0, line_.find_first_of(separators));
    line_.remove_prefix(cell.size());
    ++column_;
    return true;
  }

  std::int64_t whole(std::string_view cell) const {
    std::int64_t value = 0;
    const char* end = cell.data() + cell.size();
    if (const auto [at, error] = std::from_chars(cell.data(), end, value); error == std::errc() && at == end)
      return value;
    double number = 0;
    const auto [at, error] = std::from_chars(cell.data(), end, number);
    if (error != std::errc() || at != end || !(std::abs(number) <= 0x1p53) || number != std::floor(number))
      throw ParseError(file_, fmt::format("line {}, column {}", number_, column_),
                       fmt::format("'{}' is not a whole number", cell));
    return static_cast<std::int64_t>(number);
  }

 private:
  // Left out, what stands behind it would count for another expert. One may end a line.
  void require_no_blank(std::string_view gap) const {
    const auto marks = std::ranges::count_if(gap, [](char c) { return c == ',' || c == ';'; });
    if (marks > (column_ == 0 ? 0 : 1))
      throw ParseError(file_, fmt::format("line {}, column {}", number_, column_ + 1), "is blank");
  }

  std::string_view line_;
  const std::string& file_;
  std::size_t number_;
  std::size_t column_ = 0;
};

bool is_number(std::string_view cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell.front())) != 0 ||
                           cell.front() == '-' || cell.front() == '.');
}

IntArray matrix_of_lines(std::string_view text, const std::string& file) {
  IntArray matrix{.shape = {0, 0}, .values = {}};
  bool numbered = false;  // the first column is the layer's number
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    Cells cells(line, file, number);
    std::string_view cell;
    if (!cells.next(cell) || cell.starts_with('#')) continue;
    if (matrix.shape[0] == 0 && matrix.shape[1] == 0 && !is_number(cell)) {
      numbered = cell == "layer" || cell == "layer_id";
      matrix.shape[1] = -1;
      continue;
    }
    std::int64_t columns = 0;
    bool skip = numbered;
    do {
      if (!skip) {
        matrix.values.push_back(cells.whole(cell));
        ++columns;
      }
      skip = false;
    } while (cells.next(cell));
    stop_if_asked();
    if (matrix.shape[0]++ == 0) matrix.shape[1] = columns;
    if (columns != matrix.shape[1])
      throw ParseError(file, fmt::format("line {}", number),
                       fmt::format("has {} numbers where the first had {}", columns, matrix.shape[1]));
  }
  return matrix;
}

// How deep the lists are, by their first elements.
std::size_t depth_of(const Json& list) {
  std::size_t depth = 0;
  for (const Json* at = &list; at->is_array(); at = &at->front()) {
    ++depth;
    if (at->empty()) break;
  }
  return depth;
}

}  // namespace

const ArrayInfo* find_counts(const ArrayFile& file) {
  for (std::string_view name : names)
    if (const ArrayInfo* found = file.find(name)) return found;
  return nullptr;
}

RoutingFile open_count_array(const ArrayFile& file, std::string_view array) {
  RoutingFile routing = internal::routing_of_counts(read_whole_numbers(file, array), file.name(),
                                                    std::string(array), CountRows::moe_layers);
  routing.format = name_of(file.format());
  return routing;
}

RoutingFile open_count_text(const ByteSource& source) {
  const std::string whole = internal::read_text(source, "text");
  const std::string_view text = internal::without_mark(whole);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  RoutingFile routing;
  if (is_json) {
    const Json json = internal::parse_json(text, source.name(), std::ssize(whole) - std::ssize(text));
    const std::string key = json.is_object() ? "logical_count" : "counts";
    const Json& list = json.is_object() ? internal::member(json, "logical_count", source.name()) : json;
    const std::size_t depth = std::clamp(depth_of(list), std::size_t{2}, std::size_t{3});
    // SGLang's have a row for every hidden layer.
    routing =
        internal::routing_of_counts(internal::nested_integers(list, depth, source.name(), key), source.name(),
                                    key, json.is_object() ? CountRows::hidden_layers : CountRows::moe_layers);
  } else {
    IntArray matrix = matrix_of_lines(text, source.name());
    if (matrix.shape[0] == 0)
      throw ParseError(source.name(), "", "is text, but neither JSON nor lines of numbers");
    routing = internal::routing_of_counts(std::move(matrix), source.name(), "", CountRows::moe_layers);
  }
  routing.format = is_json ? "json" : "csv";
  return routing;
}

}  // namespace evenkeel
