#include "evenkeel/io/internal/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/nameless.h"

namespace evenkeel::internal {

namespace {

std::string where_of(std::int64_t line) {
  return fmt::format("line {}", line);
}

std::optional<Cells> names_in_comment(TextTable& table, std::size_t columns) {
  if (table.comment_before().empty()) return std::nullopt;
  Cells names = table.cells_of(table.comment_before());
  if (names.size() != columns || !is_line_of_names(names) || !names_a_layer_or_expert(names))
    return std::nullopt;
  return names;
}

// An index of the lines, which has no name and says nothing.
void take_index(Cells& cells, std::int64_t number, std::int64_t line, const std::string& file) {
  const auto index = number_of_text(cells.front());
  if (!index || !index->is_whole || index->whole != number)
    throw parse_error(
        file, fmt::format("line {}, column 1", line),
        "the column has no name and does not count the lines; call it 'layer' if it is the layer");
  cells.erase(cells.begin());
}

// What the names of a table say is not said otherwise; names that say nothing may be.
void require_as_named(const TableColumns& said, const Cells& names, const std::string& file,
                      const ReadOptions& options) {
  std::optional<TableColumns> named;
  try {
    named = columns_of_names(names, file, "line 1");
  } catch (const ParseError&) {
    return;
  }
  if (*named != said)
    throw InvalidArgument(
        "columns", fmt::format("{}, but {} calls them {}", options.columns, file, fmt::join(names, ",")),
        "to leave them out");
}

// A line of numbers and what is none is refused by its first cell that is none.
void require_numbers(const Cells& cells, std::int64_t line, const std::string& file) {
  for (std::size_t i = 0; i < cells.size(); ++i)
    if (!number_of_text(cells[i]))
      throw parse_error(
          file, fmt::format("line {}, column {}", line, i + 1), "{}",
          cells[i].empty() ? "is blank" : not_a_number(cells[i]) + ", and the line is no line of names");
}

// The lines as an array, while they are read.
class NamelessLines {
 public:
  void add(const Cells& cells, std::int64_t line, const std::string& file) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const auto number = number_of_text(cells[i]);
      if (!number)
        throw parse_error(file, fmt::format("line {}, column {}", line, i + 1), "{}",
                          cells[i].empty() ? "is blank" : not_a_number(cells[i]));
      if (is_whole_ && !number->is_whole) {
        reals_.assign(wholes_.begin(), wholes_.end());
        std::vector<std::int64_t>().swap(wholes_);
        is_whole_ = false;
      }
      if (is_whole_)
        wholes_.push_back(number->whole);
      else
        reals_.push_back(number->real);
    }
    width_ = std::ssize(cells);
    ++lines_;
  }
  bool empty() const { return lines_ == 0; }

  FoundRouting found(const std::string& file, const ReadOptions& options) && {
    if (is_whole_) return nameless(IntArray{{lines_, width_}, std::move(wholes_)}, file, options);
    return nameless(DoubleArray{{lines_, width_}, std::move(reals_)}, file, options);
  }

 private:
  std::int64_t lines_ = 0;
  std::int64_t width_ = 0;
  bool is_whole_ = true;
  std::vector<std::int64_t> wholes_;
  std::vector<double> reals_;
};

}  // namespace

FoundRouting find_in_table(std::string_view text, const std::string& file, const ReadOptions& options) {
  constexpr const char* nothing = "is text, but neither JSON nor lines of numbers";
  TextTable table(text, file);
  Cells cells;
  if (!table.next(cells)) throw ParseError(file, "", nothing);
  std::size_t width = cells.size();
  const bool named = is_line_of_names(cells);
  const bool has_index = is_line_of_ids(cells) && !number_of_text(cells.front());
  if (is_line_of_ids(cells) && !has_index)
    throw ParseError(
        file, where_of(table.line()),
        "counts the columns from 0 on, as a line of names does; take it out, or call the columns "
        "'expert_0', 'expert_1', ... or 'layer', 'k_0', ...; if they are numbers, write names above");
  if (has_index) --width;
  std::optional<NamedTable> rows;
  NamelessLines numbers;
  if (!options.columns.empty()) {
    const std::vector<std::string> names = names_of_columns(options.columns, width);
    const TableColumns columns = columns_of_names({names.begin(), names.end()}, file, "columns");
    if (named) require_as_named(columns, cells, file, options);
    rows.emplace(columns, file);
  } else if (named) {
    rows.emplace(columns_of_names(cells, file, where_of(table.line())), file);
  } else if (const auto comment = names_in_comment(table, width)) {
    rows.emplace(columns_of_names(*comment, file, where_of(table.line())), file);
  } else if (!has_index) {
    require_numbers(cells, table.line(), file);
  }
  std::int64_t lines = 0;
  for (bool more = named || has_index ? table.next(cells) : true; more; more = table.next(cells)) {
    if (has_index) take_index(cells, lines++, table.line(), file);
    if (cells.size() != width)
      throw parse_error(file, where_of(table.line()), "has {} {} where the first had {}", cells.size(),
                        rows ? "cells" : "numbers", width);
    rows ? rows->add(cells, table.line()) : numbers.add(cells, table.line(), file);
  }
  if (rows ? rows->empty() : numbers.empty()) throw ParseError(file, "", nothing);
  FoundRouting found = rows ? rows->found(options) : std::move(numbers).found(file, options);
  if (!options.columns.empty()) found.say_axes(options.columns, "columns ");
  found.format = "csv";
  return found;
}

}  // namespace evenkeel::internal
