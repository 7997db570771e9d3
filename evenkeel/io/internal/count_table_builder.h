// The counts of a table, from lines of cells whose columns are known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "evenkeel/io/internal/count_table.h"
#include "evenkeel/io/internal/table_columns.h"
#include "evenkeel/io/internal/text_table.h"

namespace evenkeel::internal {

using CellTexts = std::vector<std::string_view>;

class CountTableBuilder {
 public:
  CountTableBuilder(TableColumns columns, std::string file);

  // Throws ParseError, naming line and column: a cell that is no number, no id or negative.
  void add(const CellTexts& cells, std::int64_t line);
  bool empty() const { return rows_.empty(); }

  // Layers in ascending order, the lines of several steps added up. Throws as read_count_table() does.
  CountTable table(std::optional<int> num_experts);

 private:
  struct Row {
    int layer = 0;
    int expert = 0;
    int step = 0;
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

  [[noreturn]] void refuse(std::size_t column, const std::string& why) const;
  TableNumber number(const CellTexts& cells, std::size_t column) const;
  TableNumber count(const CellTexts& cells, std::size_t column) const;
  int id(const CellTexts& cells, std::size_t column, std::int64_t end, const char* what) const;
  int step_of(const CellTexts& cells);
  bool layers_count_up() const;
  void require_no_doubles() const;
  [[noreturn]] void refuse_double(const Row& first, const Row& second) const;
  void require_expert_zero(std::optional<int> num_experts) const;
  std::vector<int> layers_of_rows() const;
  std::size_t num_experts_of(std::optional<int> num_experts) const;
  void require_dense_enough(std::size_t size) const;
  template <class Number>
  std::vector<Number> sums(const std::vector<Number>& cells, const std::vector<int>& layers,
                           std::size_t experts) const;

  TableColumns columns_;
  std::string file_;
  std::int64_t line_ = 0;
  std::vector<Row> rows_;
  std::unordered_map<std::string, int> steps_;
  Cells cells_;
};

}  // namespace evenkeel::internal
