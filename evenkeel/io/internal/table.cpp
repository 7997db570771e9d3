#include "evenkeel/io/internal/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/nameless.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

// The place of a line in the file, for messages about its cells.
struct Place {
  const std::string& file;
  std::int64_t line;

  template <class... Args>
  [[noreturn]] void refuse(std::size_t column, fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file, fmt::format("line {}, column {}", line, column + 1), why,
                      std::forward<Args>(args)...);
  }
};

// `or_else` is appended to the message.
TableNumber number_in(const Cells& cells, std::size_t column, const Place& place, const char* or_else = "") {
  const std::string_view cell = cells[column];
  if (const auto number = number_of_text(cell)) return *number;
  if (cell.empty()) place.refuse(column, "is blank");
  if (cell.find(',') != std::string_view::npos &&
      cell.find_first_not_of("0123456789,.+-") == std::string_view::npos)
    place.refuse(column, "'{}' has a comma; write decimals with a point, and thousands without a mark{}",
                 cell, or_else);
  place.refuse(column, "'{}' is not a number{}", cell, or_else);
}

int id_in(const Cells& cells, std::size_t column, std::int64_t least, std::int64_t end, const char* what,
          const Place& place) {
  const TableNumber made = number_in(cells, column, place);
  if (!made.is_whole || made.whole < least || made.whole >= end)
    place.refuse(column, "'{}' is no {} in {}..{}", cells[column], what, least, end - 1);
  return static_cast<int>(made.whole);
}

// A column without a name is ignored if it counts the lines. Otherwise throws, since it may be the layer.
void require_line_number(std::string_view cell, std::int64_t number, const Place& place) {
  const auto index = number_of_text(cell);
  if (!index || !index->is_whole || index->whole != number)
    place.refuse(0,
                 "the column has no name and does not count the lines; call it 'layer' if it is the layer");
}

std::size_t place_in(const std::vector<int>& layers, int layer) {
  return static_cast<std::size_t>(std::ranges::lower_bound(layers, layer) - layers.begin());
}

// The columns by their names; nullopt if the names are not clear.
std::optional<TableColumns> columns_said(const Cells& names, const std::string& file, std::int64_t line) {
  try {
    return columns_of_names(names, file, fmt::format("line {}", line));
  } catch (const ParseError&) {
    if (std::ranges::find(names, Meaning::one_layer, &column_meaning) != names.end()) throw;
    return std::nullopt;
  }
}

// The columns by the options. Throws if the table's names are clear and disagree.
TableColumns columns_told(const TextTable& table, const Cells& first, bool named, std::size_t width,
                          const std::string& file, const ReadOptions& options) {
  TableColumns told = columns_of_option(options.columns, width, file);
  if (named && columns_said(first, file, table.line()).value_or(told) != told)
    throw InvalidArgument(
        "columns",
        fmt::format("{}, but {} names its columns {}", options.columns, file, fmt::join(first, ",")),
        "to leave it out");
  return told;
}

// The columns by the names in the table's first line or in a comment before it; nullopt without names.
std::optional<TableColumns> named_columns(const TextTable& table, const Cells& first, bool named,
                                          std::size_t width, const std::string& file) {
  const Cells names = named ? first : table.comment_before();
  const bool says_something = std::ranges::any_of(names, [](std::string_view name) {
    return column_meaning(name) == Meaning::layer || column_meaning(name) == Meaning::expert;
  });
  if (!named && (names.size() != width || !is_line_of_names(names) || !says_something)) return std::nullopt;
  return columns_of_names(names, file, fmt::format("line {}", table.line()));
}

}  // namespace

void TableNumbers::add(const TableNumber& number) {
  if (!number.is_whole && !fractional) {
    reals.assign(wholes.begin(), wholes.end());
    std::vector<std::int64_t>().swap(wholes);
    fractional = true;
  }
  if (fractional)
    reals.push_back(number.real);
  else
    wholes.push_back(number.whole);
}

FoundRouting TableNumbers::nameless(std::int64_t lines, const std::string& file,
                                    const ReadOptions& options) && {
  const std::vector<std::int64_t> shape = {lines, size() / lines};
  if (fractional) return internal::nameless(DoubleArray{shape, std::move(reals)}, file, options);
  return internal::nameless(IntArray{shape, std::move(wholes)}, file, options);
}

FoundRouting find_in_table(std::string_view text, const std::string& file, const ReadOptions& options) {
  TextTable table(text, file);
  Cells cells;
  if (!table.next(cells)) throw ParseError(file, "", "is text, but neither JSON nor lines of numbers");
  const bool named = is_line_of_names(cells);
  const bool has_index = is_line_of_ids(cells) && !number_of_text(cells.front());
  if (is_line_of_ids(cells) && !has_index)
    throw ParseError(
        file, fmt::format("line {}", table.line()),
        "has 0, 1, 2, ..., which may be column names; remove the line, or name the columns 'expert_0', "
        "'expert_1', ... or 'layer', 'k_0', ...; if it is data, write a line of names above it");
  const std::size_t width = cells.size() - (has_index ? 1 : 0);
  const bool told = !options.columns.empty();
  std::optional<NamedTable> rows;
  if (auto columns = told ? columns_told(table, cells, named, width, file, options)
                          : named_columns(table, cells, named, width, file))
    rows.emplace(*std::move(columns), file);
  const bool has_header = named || has_index;
  TableNumbers numbers;
  std::int64_t lines = 0;
  for (bool more = !has_header || table.next(cells); more; more = table.next(cells), ++lines) {
    const Place place{file, table.line()};
    if (has_index) {
      require_line_number(cells.front(), lines, place);
      cells.erase(cells.begin());
    }
    if (cells.size() != width)
      throw parse_error(file, fmt::format("line {}", table.line()), "has {} {}, but the first line has {}",
                        cells.size(), rows ? "cells" : "numbers", width);
    const bool may_be_names = !has_header && lines == 0;
    if (rows) rows->add(cells, table.line());
    for (std::size_t i = 0; !rows && i < width; ++i)
      numbers.add(
          number_in(cells, i, place, may_be_names ? ", and the line is not one of column names" : ""));
  }
  if (lines == 0) throw ParseError(file, "", "is text, but neither JSON nor lines of numbers");
  FoundRouting found = rows ? rows->found(options) : std::move(numbers).nameless(lines, file, options);
  if (told) found.say_axes(options.columns, "columns ");
  found.format = "csv";
  return found;
}

NamedTable::NamedTable(TableColumns columns, std::string file)
    : columns_(std::move(columns)), file_(std::move(file)) {}

void NamedTable::add(const Cells& cells, std::int64_t line) {
  const Place place{file_, line};
  const bool lines_are_layers =
      !columns_.layer && !columns_.expert && !columns_.numbers_are_ids && !has_lines_apart();
  Row row{.layer = lines_are_layers ? static_cast<int>(rows_.size()) : 0, .line = line};
  if (columns_.layer) row.layer = id_in(cells, *columns_.layer, 0, max_layers, "layer number", place);
  if (columns_.expert) row.expert = id_in(cells, *columns_.expert, 0, max_trace_experts, "expert id", place);
  if (columns_.index && !columns_.layer && !columns_.expert && !columns_.token)
    require_line_number(cells[*columns_.index], std::ssize(rows_), place);
  row.step = number_of(cells, columns_.steps, steps_);
  row.part = number_of(cells, columns_.parts, parts_);
  if (columns_.token) row.token = number_of(cells, {*columns_.token}, tokens_);
  rows_.push_back(row);
  for (std::size_t column : columns_.numbers) {
    if (columns_.numbers_are_ids) {
      numbers_.add({.whole = id_in(cells, column, no_expert, max_trace_experts, "expert id", place)});
      continue;
    }
    const TableNumber made = number_in(cells, column, place);
    if (made.real < 0) place.refuse(column, "is {}; a count is 0 or more", cells[column]);
    numbers_.add(made);
  }
}

FoundRouting NamedTable::found(const ReadOptions& options) {
  if (columns_.numbers_are_ids && !columns_.token) number_tokens();
  require_no_doubles();
  std::vector<int> layers;
  for (const Row& row : rows_) layers.push_back(row.layer);
  std::ranges::sort(layers);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  const bool has_numbers = columns_.layer && !columns_.layer_is_order;
  return columns_.numbers_are_ids ? tokens(layers, has_numbers, options)
                                  : counts(layers, has_numbers, options);
}

int NamedTable::number_of(const Cells& cells, const std::vector<std::size_t>& columns, Texts& texts) {
  if (columns.empty()) return 0;
  std::string key;
  for (std::size_t column : columns) key.append(cells[column]).push_back('\0');
  return texts.try_emplace(std::move(key), static_cast<int>(texts.size())).first->second;
}

// Without a column of tokens, the n-th line of a layer in a step and rank belongs to the n-th token. All
// layers must have equally many lines, since a missing line would shift the following ones to other tokens.
void NamedTable::number_tokens() {
  std::map<std::tuple<int, int, int>, int> lines_of;
  for (Row& row : rows_) row.token = lines_of[{row.step, row.part, row.layer}]++;
  const auto uneven = std::ranges::adjacent_find(lines_of, [](const auto& a, const auto& b) {
    return std::get<0>(a.first) == std::get<0>(b.first) && std::get<1>(a.first) == std::get<1>(b.first) &&
           a.second != b.second;
  });
  if (uneven != lines_of.end())
    throw parse_error(file_, "",
                      "has {} lines of layer {} but {} of layer {}, so lines cannot be matched to tokens; "
                      "add a column 'token'",
                      uneven->second, std::get<2>(uneven->first), std::next(uneven)->second,
                      std::get<2>(std::next(uneven)->first));
}

void NamedTable::require_no_doubles() const {
  std::vector<Row> sorted = rows_;
  std::ranges::sort(sorted);
  const auto first = std::ranges::adjacent_find(sorted, [](Row a, const Row& b) {
    a.line = b.line;
    return a == b;
  });
  if (first == sorted.end()) return;
  std::vector<std::string> what;
  if (columns_.layer) what.push_back(fmt::format("layer {}", first->layer));
  if (columns_.expert) what.push_back(fmt::format("expert {}", first->expert));
  if (columns_.token) what.push_back("the token");
  if (what.empty()) what.push_back("the step");
  const bool may_be_ids = !columns_.expert && !columns_.numbers_are_ids;
  throw parse_error(file_, fmt::format("line {}", std::next(first)->line), "repeats {} of line {}, and {}{}",
                    fmt::join(what, ", "), first->line,
                    has_lines_apart() ? "both lines are of the same step or rank"
                                      : "no column such as step, rank or forward_pass tells the two apart",
                    may_be_ids && !has_lines_apart()
                        ? "; if the numbers are expert ids, name their columns 'k_0', 'k_1', ..."
                        : "");
}

// An expert without assignments has no line. So if expert 0 has no line, ids may begin with 1, or no token
// chose expert 0.
std::size_t NamedTable::num_experts_of(const ReadOptions& options) const {
  if (!columns_.expert) return columns_.numbers.size();
  const auto [least, most] = std::ranges::minmax(rows_, {}, &Row::expert);
  if (least.expert > 0 && !options.num_experts)
    throw InvalidArgument("num_experts",
                          fmt::format("is not given, and {} has no line for expert 0: its ids may count from "
                                      "{}, or the experts below may have no load",
                                      file_, least.expert),
                          "the number of experts, if ids count from 0; else renumber the ids from 0");
  const int there = most.expert + 1;
  if (options.num_experts.value_or(there) < there)
    throw InvalidArgument("num_experts",
                          fmt::format("{}, but {} has expert {}", *options.num_experts, file_, most.expert),
                          fmt::format("{} or more", there));
  return static_cast<std::size_t>(options.num_experts.value_or(there));
}

template <class Number>
std::vector<Number> NamedTable::sums(const std::vector<Number>& cells, const std::vector<int>& layers,
                                     std::size_t experts, std::size_t steps) const {
  std::vector<Number> sums(steps * layers.size() * experts, Number{0});
  const std::size_t width = columns_.numbers.size();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::size_t step = steps > 1 ? static_cast<std::size_t>(rows_[i].step) : 0;
    const std::size_t begin = (step * layers.size() + place_in(layers, rows_[i].layer)) * experts +
                              static_cast<std::size_t>(rows_[i].expert);
    for (std::size_t j = 0; j < width; ++j) sums[begin + j] += cells[i * width + j];
  }
  return sums;
}

FoundRouting NamedTable::counts(const std::vector<int>& layers, bool has_numbers,
                                const ReadOptions& options) const {
  const std::size_t experts = num_experts_of(options);
  const bool by_step = options.keeps_steps() && !columns_.steps.empty();
  const std::size_t steps = by_step ? steps_.size() : 1;
  require_dense_enough(numbers_.size(), static_cast<std::int64_t>(steps), std::ssize(layers),
                       static_cast<std::int64_t>(experts), file_);
  require_loads(numbers_.wholes, file_, "");
  std::vector<std::int64_t> shape = {std::ssize(layers), static_cast<std::int64_t>(experts)};
  if (by_step) shape.insert(shape.begin(), static_cast<std::int64_t>(steps));
  // If layers have numbers, those without assignments are dense.
  const CountRows rows = has_numbers ? CountRows::hidden_layers : CountRows::unsaid;
  FoundRouting found =
      numbers_.fractional
          ? found_counts(DoubleArray{shape, sums(numbers_.reals, layers, experts, steps)}, file_, "", rows)
          : found_counts(IntArray{shape, sums(numbers_.wholes, layers, experts, steps)}, file_, "", rows);
  if (has_numbers) std::get<FoundCounts>(found.content).layers = LayerNumbers(layers);
  return found;
}

FoundRouting NamedTable::tokens(const std::vector<int>& layers, bool has_numbers,
                                const ReadOptions& options) const {
  const std::size_t k = columns_.numbers.size();
  TokenIds all{.ids = {}, .layers = layers, .top_k = static_cast<int>(k), .steps = {}};
  // Tokens are ordered by step, then by part and token in order of first appearance.
  const auto key_of = [](const Row& row) { return std::tuple(row.step, row.part, row.token); };
  std::map<std::tuple<int, int, int>, std::size_t> places;
  for (const Row& row : rows_) places.try_emplace(key_of(row), 0);
  std::size_t num_tokens = 0;
  for (auto& [key, place] : places) {
    const auto token = static_cast<std::int64_t>(place = num_tokens++);
    if (std::ssize(all.steps) == std::get<0>(key)) all.steps.push_back({{token, token}});
    all.steps.back().front().end = token + 1;
  }
  if (columns_.steps.empty()) all.steps.clear();
  require_dense_enough(numbers_.size(), static_cast<std::int64_t>(num_tokens), std::ssize(layers),
                       static_cast<std::int64_t>(k), file_);
  all.ids.assign(num_tokens * layers.size() * k, no_expert);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::size_t row = places.at(key_of(rows_[i])) * layers.size() + place_in(layers, rows_[i].layer);
    for (std::size_t j = 0; j < k; ++j)
      all.ids[row * k + j] = static_cast<std::int32_t>(numbers_.wholes[i * k + j]);
  }
  FoundRouting found = found_tokens(std::move(all), options.num_experts, file_);
  if (!has_numbers) std::get<FoundTrace>(found.content).reader->set_layers({});
  return found;
}

}  // namespace evenkeel::internal
