// Counts of experts in a text table (docs/formats.md#counts): long, a line for each expert of a layer, or
// wide, a line for each layer. The names of the columns decide; what they leave open is refused, not guessed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/table_columns.h"
#include "evenkeel/io/internal/text_table.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel::internal {

struct CountTable {
  IntArray counts;               // [layers, E], or [steps, layers, E]; layers ascend where they have numbers
  std::vector<int> layers = {};  // the model's numbers of the rows; empty where the table does not say them
  std::vector<std::string> notes;  // what was read otherwise than it stands there, and why
  bool named = true;               // a line of names says what the columns are
};

using CellTexts = std::vector<std::string_view>;

// The counts of a table, from lines of cells whose columns are known.
class CountTableBuilder {
 public:
  CountTableBuilder(TableColumns columns, std::string file);

  // Throws ParseError, naming line and column: a cell that is no number, no id or negative.
  void add(const CellTexts& cells, std::int64_t line);
  bool empty() const { return rows_.empty(); }

  // Layers in ascending order, the lines of several ranks added up, and those of several steps unless these
  // are to be kept; steps are then in the order in which they are met. Throws as read_count_table() does.
  CountTable table(std::optional<int> num_experts, bool keep_steps);

 private:
  struct Row {
    int layer = 0;
    int expert = 0;
    int step = 0;
    int part = 0;
    std::int64_t line = 0;
  };
  // Whole numbers until one is not.
  struct Cells {
    void add(const TableNumber& number);
    std::size_t size() const { return fractional ? reals.size() : wholes.size(); }

    bool fractional = false;
    std::vector<std::int64_t> wholes = {};
    std::vector<double> reals = {};
  };

  template <class... Args>
  [[noreturn]] void refuse(std::size_t column, fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, fmt::format("line {}, column {}", line_, column + 1), why,
                      std::forward<Args>(args)...);
  }
  TableNumber number(const CellTexts& cells, std::size_t column) const;
  TableNumber count(const CellTexts& cells, std::size_t column) const;
  int id(const CellTexts& cells, std::size_t column, std::int64_t end, const char* what) const;
  // Which of the texts that these columns had so far a line has there, from 0 on.
  using Texts = std::unordered_map<std::string, int>;
  static int place_of(const CellTexts& cells, const std::vector<std::size_t>& columns, Texts& texts);
  bool has_lines_apart() const { return !columns_.steps.empty() || !columns_.parts.empty(); }
  bool layers_count_up() const;
  void drop_index();
  void require_no_doubles() const;
  [[noreturn]] void refuse_double(const Row& first, const Row& second) const;
  void require_expert_zero(std::optional<int> num_experts) const;
  std::vector<int> layers_of_rows() const;
  std::size_t num_experts_of(std::optional<int> num_experts) const;
  void require_dense_enough(std::size_t layers, std::size_t experts, std::size_t steps) const;
  // [steps, layers, experts], of one step where they are added up.
  template <class Number>
  std::vector<Number> sums(const std::vector<Number>& cells, const std::vector<int>& layers,
                           std::size_t experts, std::size_t steps) const;

  TableColumns columns_;
  std::string file_;
  std::int64_t line_ = 0;
  std::vector<Row> rows_;
  Texts steps_;
  Texts parts_;
  Cells cells_;
};

// A long table leaves out what nobody chose, so that `num_experts` may say more than its largest id. With
// `keep_steps`, a table with a column of steps is not added up over them. Throws
// ParseError: names or cells that are no counts, a layer or expert that is there twice with no step, rank or
// the like to tell them apart.
CountTable read_count_table(std::string_view text, const std::string& file, std::optional<int> num_experts,
                            bool keep_steps = false);
// Layers that have numbers and no assignment are dense, and left out.
RoutingFile routing_of_table(CountTable table, const std::string& file);

}  // namespace evenkeel::internal
