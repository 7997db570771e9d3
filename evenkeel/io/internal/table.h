// Routing in lines of cells: a text table, such as CSV (docs/formats.md#text-tables), or records in JSON
// Lines. The names of the columns give the meaning; ambiguous names are refused. Without names an error lists
// the possible readings.
//
//   long    a line for each expert of a layer: `layer_id,expert_id,count`, in any order, with other columns
//           between
//   wide    a line for each layer: `layer,expert_0,expert_1,...`
//   tokens  a line for each token in a layer: `token,layer,k_0,k_1,...`
//
// The first line that is not a comment decides the separator: a semicolon if it has one, else a tab that is
// not next to a comma, else a comma, else spaces. Lines end in LF, CRLF or CR. Cells may be quoted. Lines
// that begin with # are comments, except for a spreadsheet's errors such as #N/A. A separator may end every
// line.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "evenkeel/io/internal/found_routing.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel::internal {

// Whether a text that is neither JSON nor YAML begins like a table; `head` is its first few kilobytes.
bool begins_like_table(std::string_view head);

// The number in a cell. Whole numbers up to 2^63-1 are exact.
struct TableNumber {
  std::int64_t whole = 0;
  double real = 0;       // the same, rounded
  bool is_whole = true;  // false: only `real` is valid
};
// nullopt if the text is not a finite number.
std::optional<TableNumber> number_of_text(std::string_view text);

using Cells = std::vector<std::string_view>;

class TextTable {
 public:
  TextTable(std::string_view text, std::string file);

  // The cells of the next line that is neither blank nor a comment; false if there is none. Throws ParseError
  // if a quote is not closed, or text follows a closing quote.
  bool next(Cells& cells);
  // The number of the last returned line, from 1.
  std::int64_t line() const { return number_; }
  // The cells of the comment right before that line, without its #.
  Cells comment_before() const;

 private:
  Cells split(std::string_view line) const;

  std::string file_;
  std::string_view rest_;
  std::string_view comment_;
  std::int64_t number_ = 0;
  char separator_ = ',';  // ' ': any number of spaces and tabs
};

// The meaning of a column. step: the step of a line. part: its rank, device or time. count: a name that only
// counts have. choice: an id of a token's top-k. one_layer: numbers of one layer. index: the number of the
// line.
enum class Meaning { layer, expert, token, step, part, count, choice, one_layer, index, other };
Meaning column_meaning(std::string_view name);

struct TableColumns {
  bool operator==(const TableColumns&) const = default;

  std::optional<std::size_t> layer;
  // `layer` counts only MoE layers, so it gives an order but not the model's layer number.
  bool layer_is_order = false;
  std::optional<std::size_t> expert;
  std::optional<std::size_t> token;
  // A column without a name, as in pandas' index.
  std::optional<std::size_t> index;
  // These columns together identify the step of a line.
  std::vector<std::size_t> steps;
  // Ranks, devices and times, which distinguish lines of a step. Counts are added up over them.
  std::vector<std::size_t> parts;
  // Counts: one column in a long table, the columns of expert 0, 1, ... in a wide one. Or the ids of a token.
  std::vector<std::size_t> numbers;
  bool numbers_are_ids = false;
};

// Whether the first line of a table has names: some cells are not numbers. Numbers may occur as expert ids,
// next to names of layers, experts and steps.
bool is_line_of_names(const Cells& cells);
// Whether the first line only counts the columns from 0, as in pandas. A blank cell above the line index must
// come first, or there must be at least three columns.
bool is_line_of_ids(const Cells& cells);

// The meanings of columns with these names. Throws ParseError, quoting the names in question, if the names do
// not give the meanings; `where` is "line 1".
TableColumns columns_of_names(const Cells& names, const std::string& file, const std::string& where);

// The meanings that --columns gives to `count` columns: "layer,k..." is layer, k_0, k_1. Throws
// InvalidArgument, or ParseError as columns_of_names() does.
TableColumns columns_of_option(std::string_view columns, std::size_t count, const std::string& file);

// Throws as read_recording() does.
FoundRouting find_in_table(std::string_view text, const std::string& file, const ReadOptions& options);

// A list of numbers: int64 until the first number that is not whole, then double.
struct TableNumbers {
  void add(const TableNumber& number);
  std::int64_t size() const { return fractional ? std::ssize(reals) : std::ssize(wholes); }
  // Reads the numbers of `lines` equally long lines as an array without a name.
  FoundRouting nameless(std::int64_t lines, const std::string& file, const ReadOptions& options) &&;

  bool fractional = false;
  std::vector<std::int64_t> wholes = {};
  std::vector<double> reals = {};
};

// The lines of a table with known columns.
class NamedTable {
 public:
  NamedTable(TableColumns columns, std::string file);

  // Throws ParseError, naming line and column, if a count is negative or not a number, if an id is not a
  // whole number in its range, or if an index does not count the lines.
  void add(const Cells& cells, std::int64_t line);

  // Layers are in ascending order. Counts of several ranks are added up, and so are counts of several steps
  // unless steps are kept. Kept steps are in order of first appearance. A long table may lack experts that no
  // token chose, so options.num_experts may be above its largest id. Throws ParseError if a layer, expert or
  // token appears twice without a step, rank or the like to distinguish the lines.
  FoundRouting found(const ReadOptions& options);

 private:
  struct Row {
    std::strong_ordering operator<=>(const Row&) const = default;

    int layer = 0;
    int expert = 0;
    int step = 0;
    int part = 0;
    int token = 0;
    std::int64_t line = 0;
  };
  // Numbers the distinct texts of some columns, from 0 in order of first appearance.
  using Texts = std::unordered_map<std::string, int>;

  static int number_of(const Cells& cells, const std::vector<std::size_t>& columns, Texts& texts);
  bool has_lines_apart() const { return !columns_.steps.empty() || !columns_.parts.empty(); }
  void number_tokens();
  void require_no_doubles() const;
  std::size_t num_experts_of(const ReadOptions& options) const;
  // [steps, layers, experts]; one step if they are added up.
  template <class Number>
  std::vector<Number> sums(const std::vector<Number>& cells, const std::vector<int>& layers,
                           std::size_t experts, std::size_t steps) const;
  FoundRouting counts(const std::vector<int>& layers, bool has_numbers, const ReadOptions& options) const;
  FoundRouting tokens(const std::vector<int>& layers, bool has_numbers, const ReadOptions& options) const;

  TableColumns columns_;
  std::string file_;
  std::vector<Row> rows_;
  Texts steps_;
  Texts parts_;
  Texts tokens_;
  TableNumbers numbers_;
};

}  // namespace evenkeel::internal
