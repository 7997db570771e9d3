#include "evenkeel/io/internal/count_table.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/moe_layers.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/text_table.h"

namespace evenkeel::internal {

namespace {

std::string where_of(std::int64_t line) {
  return fmt::format("line {}", line);
}

// A line that is neither names nor numbers is refused by its first cell that is no number.
void require_numbers(const CellTexts& cells, std::int64_t line, const std::string& file) {
  for (std::size_t i = 0; i < cells.size(); ++i)
    if (!cells[i].empty() && !number_of_text(cells[i]))
      throw ParseError(file, fmt::format("line {}, column {}", line, i + 1),
                       not_a_number(cells[i]) + ", and the line is no line of names");
}

// Lines of (layer, expert, count) without names would pass for layers of three experts.
void require_no_unnamed_triples(const CountTable& table, const std::string& file) {
  const auto& values = table.counts.values;
  const std::size_t rows = static_cast<std::size_t>(table.counts.shape[0]);
  if (table.counts.shape[1] != 3 || rows < 6) return;
  std::size_t groups = 1;
  for (std::size_t i = 1; i < rows; ++i) {
    const std::int64_t before = values[3 * i - 3];
    if (values[3 * i] < before || (values[3 * i] == before && values[3 * i + 1] <= values[3 * i - 2])) return;
    groups += values[3 * i] > before ? 1 : 0;
  }
  if (2 * groups > rows) return;
  throw ParseError(file, "line 1",
                   "the lines may be a layer, an expert and its count each, or the counts of three experts; "
                   "name the columns in a first line, 'layer,expert,count' or 'expert_0,expert_1,expert_2'");
}

// A first column that counts the lines would pass for an expert's counts.
void require_no_unnamed_layers(const CountTable& table, const std::string& file) {
  const auto& values = table.counts.values;
  const auto columns = static_cast<std::size_t>(table.counts.shape[1]);
  const auto rows = static_cast<std::size_t>(table.counts.shape[0]);
  if (columns < 3 || rows < 4) return;
  for (std::size_t i = 1; i < rows; ++i)
    if (values[i * columns] != values[(i - 1) * columns] + 1) return;
  throw parse_error(file, "line 1",
                    "the first column counts from {} to {}: it may be the layer, or the counts of expert 0; "
                    "name the columns in a first line, 'layer,expert_0,...' or 'expert_0,...'",
                    values.front(), values[(rows - 1) * columns]);
}

std::optional<CellTexts> names_in_comment(TextTable& table, std::size_t columns) {
  if (table.comment_before().empty()) return std::nullopt;
  CellTexts names = table.cells_of(table.comment_before());
  if (names.size() != columns || !is_line_of_names(names) || !names_a_layer_or_expert(names))
    return std::nullopt;
  return names;
}

TableColumns columns_without(const CellTexts& cells, std::int64_t line, const std::string& file) {
  require_numbers(cells, line, file);
  if (cells.size() == 1)
    throw ParseError(file, where_of(line),
                     "has one number, and a layer has two experts at least; write the experts of a layer in "
                     "one line, or name the columns 'expert' and 'count'");
  return columns_without_names(cells.size());
}

}  // namespace

CountTable read_count_table(std::string_view text, const std::string& file, std::optional<int> num_experts,
                            bool keep_steps) {
  constexpr const char* nothing = "is text, but neither JSON nor lines of numbers";
  TextTable table(text, file);
  CellTexts cells;
  if (!table.next(cells)) throw ParseError(file, "", nothing);
  const std::size_t width = cells.size();
  const bool named = is_line_of_names(cells);
  const auto comment = named ? std::nullopt : names_in_comment(table, width);
  const bool has_names = named || comment.has_value();
  CountTableBuilder rows(has_names ? columns_of_names(named ? cells : *comment, file, where_of(table.line()))
                                   : columns_without(cells, table.line(), file),
                         file);
  if (!named) rows.add(cells, table.line());
  while (table.next(cells)) {
    if (cells.size() != width)
      throw parse_error(file, where_of(table.line()), "has {} {} where the first had {}", cells.size(),
                        has_names ? "cells" : "numbers", width);
    rows.add(cells, table.line());
  }
  if (rows.empty()) throw ParseError(file, "", nothing);
  CountTable made = rows.table(num_experts, keep_steps);
  made.named = has_names;
  if (!has_names) {
    require_no_unnamed_triples(made, file);
    require_no_unnamed_layers(made, file);
  }
  return made;
}

RoutingFile routing_of_table(CountTable table, const std::string& file) {
  const bool numbered = !table.layers.empty();
  RoutingFile made = routing_of_counts(std::move(table.counts), file, "",
                                       numbered ? CountRows::hidden_layers : CountRows::unsaid);
  if (numbered) {  // of the rows that are kept
    std::vector<int> kept;
    for (int row : made.profile->layers().numbers())
      kept.push_back(table.layers[static_cast<std::size_t>(row)]);
    made.profile->set_layers(LayerNumbers(std::move(kept)));
  }
  made.notes.insert(made.notes.end(), table.notes.begin(), table.notes.end());
  return made;
}

}  // namespace evenkeel::internal
