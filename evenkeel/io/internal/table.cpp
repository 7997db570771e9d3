#include "evenkeel/io/internal/table.h"

#include <fmt/format.h>

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
    require_no_line_of_ids(file, options);
    if (is_whole_) return nameless(IntArray{{lines_, width_}, std::move(wholes_)}, file, options);
    return nameless(DoubleArray{{lines_, width_}, std::move(reals_)}, file, options);
  }

 private:
  // A first line that counts the columns would pass for the loads of a layer.
  void require_no_line_of_ids(const std::string& file, const ReadOptions& options) const {
    if (!is_whole_ || width_ < 3 || (options.axes.empty() && options.columns.empty())) return;
    for (std::int64_t i = 0; i < width_; ++i)
      if (wholes_[static_cast<std::size_t>(i)] != i) return;
    throw parse_error(file, "line 1",
                      "counts the columns from 0 on, as a line of names does; take it out, or call the "
                      "columns 'expert_0', 'expert_1', ...");
  }

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
  const std::size_t width = cells.size();
  const bool named = is_line_of_names(cells);
  std::optional<NamedTable> rows;
  NamelessLines numbers;
  if (!options.columns.empty()) {
    const std::vector<std::string> names = names_of_columns(options.columns, width);
    rows.emplace(columns_of_names({names.begin(), names.end()}, file, "columns"), file);
  } else if (named) {
    rows.emplace(columns_of_names(cells, file, where_of(table.line())), file);
  } else if (const auto comment = names_in_comment(table, width)) {
    rows.emplace(columns_of_names(*comment, file, where_of(table.line())), file);
  } else {
    require_numbers(cells, table.line(), file);
  }
  for (bool more = named ? table.next(cells) : true; more; more = table.next(cells)) {
    if (cells.size() != width)
      throw parse_error(file, where_of(table.line()), "has {} {} where the first had {}", cells.size(),
                        rows ? "cells" : "numbers", width);
    rows ? rows->add(cells, table.line()) : numbers.add(cells, table.line(), file);
  }
  if (rows ? rows->empty() : numbers.empty()) throw ParseError(file, "", nothing);
  FoundRouting found = rows ? rows->found(options) : std::move(numbers).found(file, options);
  if (!options.columns.empty()) {
    found.axes = options.columns;
    found.notes.insert(found.notes.begin(),
                       fmt::format("read as columns {}: {}", options.columns, meaning_of(found)));
  }
  found.format = "csv";
  return found;
}

}  // namespace evenkeel::internal
