// Routing in lines of cells: a text table (docs/formats.md#counts), or records in JSON lines. The names of
// the columns decide; what they leave open is refused, and lines without names are asked about.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "evenkeel/io/internal/found_routing.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/table_columns.h"
#include "evenkeel/io/internal/text_table.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel::internal {

// Throws as read_recording() does.
FoundRouting find_in_table(std::string_view text, const std::string& file, const ReadOptions& options);

// The lines of a table whose columns are known.
class NamedTable {
 public:
  NamedTable(TableColumns columns, std::string file);

  // Throws ParseError, naming line and column: a cell that is no number, no id or negative.
  void add(const Cells& cells, std::int64_t line);
  bool empty() const { return rows_.empty(); }

  // Layers in ascending order. Counts of several ranks are added up, and of several steps unless these are to
  // be kept; steps are then in the order in which they are met. A long table leaves out what nobody chose, so
  // that num_experts may say more than its largest id. Throws ParseError: a layer, expert or token that is
  // there twice with no step, rank or the like to tell them apart.
  FoundRouting found(const ReadOptions& options);

 private:
  struct Row {
    int layer = 0;
    int expert = 0;
    int step = 0;
    int part = 0;
    int token = 0;
    std::int64_t line = 0;
  };
  // Whole numbers until one is not.
  struct Numbers {
    void add(const TableNumber& number);
    std::size_t size() const { return fractional ? reals.size() : wholes.size(); }

    bool fractional = false;
    std::vector<std::int64_t> wholes = {};
    std::vector<double> reals = {};
  };
  // Which of the texts that some columns had so far a line has there, from 0 on.
  using Texts = std::unordered_map<std::string, int>;

  template <class... Args>
  [[noreturn]] void refuse(std::size_t column, fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, fmt::format("line {}, column {}", line_, column + 1), why,
                      std::forward<Args>(args)...);
  }
  TableNumber number(const Cells& cells, std::size_t column) const;
  int id(const Cells& cells, std::size_t column, std::int64_t least, std::int64_t end,
         const char* what) const;
  static int place_of(const Cells& cells, const std::vector<std::size_t>& columns, Texts& texts);
  bool has_lines_apart() const { return !columns_.steps.empty() || !columns_.parts.empty(); }
  bool has_numbers() const {
    return (columns_.layer && !columns_.layer_is_order) || !columns_.layers.empty();
  }
  void require_index() const;
  void require_no_doubles() const;
  void require_expert_zero(const ReadOptions& options) const;
  std::vector<int> layers_of_rows() const;
  std::size_t num_experts_of(const ReadOptions& options) const;
  void require_dense_enough(std::size_t layers, std::size_t experts, std::size_t steps) const;
  // [steps, layers, experts], of one step where they are added up.
  template <class Number>
  std::vector<Number> sums(const std::vector<Number>& cells, const std::vector<int>& layers,
                           std::size_t experts, std::size_t steps) const;
  FoundRouting counts(const ReadOptions& options) const;
  void number_tokens();
  FoundRouting tokens(const ReadOptions& options);

  TableColumns columns_;
  std::string file_;
  std::int64_t line_ = 0;
  std::vector<Row> rows_;
  Texts steps_;
  Texts parts_;
  Texts tokens_;
  Numbers numbers_;
};

}  // namespace evenkeel::internal
