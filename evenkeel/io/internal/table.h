// Routing in lines of cells: a text table, such as CSV (docs/formats.md#text-tables), or records in JSON
// lines. The names of the columns decide; what they leave open is refused, and lines without names are asked
// about.
//
//   long    a line for each expert of a layer: `layer_id,expert_id,count`, in any order, with others between
//   wide    a line for each layer: `layer,expert_0,expert_1,...`
//   tokens  a line for each token in a layer: `token,layer,k_0,k_1,...`
//
// The first line that is no comment says what stands between cells: a semicolon if it has one, else a tab
// that is not beside a comma, else a comma, else spaces. Lines end in LF, CRLF or CR; cells may be quoted;
// lines that begin with # are comments, unless it is the error of a spreadsheet, such as #N/A. One separator
// may end every line.
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

// A number of a cell: whole numbers up to 2^63-1 exactly.
struct TableNumber {
  std::int64_t whole = 0;
  double real = 0;       // the same, rounded
  bool is_whole = true;  // otherwise only `real` is meant
};
// None if the text is no finite number.
std::optional<TableNumber> number_of_text(std::string_view text);

using Cells = std::vector<std::string_view>;

class TextTable {
 public:
  TextTable(std::string_view text, std::string file);

  // The cells of the next line that is neither blank nor a comment; false if there is none. Throws
  // ParseError: a quote that is not closed, or has something behind it.
  bool next(Cells& cells);
  // Of the line that was given out last, from 1.
  std::int64_t line() const { return number_; }
  // What next() would make of the comment right before that line, without its #.
  Cells comment_before() const;

 private:
  Cells split(std::string_view line) const;

  std::string file_;
  std::string_view rest_;
  std::string_view comment_;
  std::int64_t number_ = 0;
  char separator_ = ',';  // ' ': any number of spaces and tabs
};

// What a column says of a line: `step` which step it is of, `part` which rank, device or time; `count` is a
// name that only counts have, `choice` that of an id of a token's top-k, `one_layer` of numbers of one layer,
// `index` of what counts the lines.
enum class Meaning { layer, expert, token, step, part, count, choice, one_layer, index, other };
Meaning column_meaning(std::string_view name);

struct TableColumns {
  bool operator==(const TableColumns&) const = default;

  std::optional<std::size_t> layer;
  // `layer` counts MoE layers alone, so that it is an order and no number of the model.
  bool layer_is_order = false;
  std::optional<std::size_t> expert;
  std::optional<std::size_t> token;
  // A column without a name, as pandas writes an index.
  std::optional<std::size_t> index;
  // Which step a line is of, all of these together.
  std::vector<std::size_t> steps;
  // Ranks, devices and times, which tell lines of a step apart: counts are added up over them.
  std::vector<std::size_t> parts;
  // Counts. Long: one. Wide: the column of expert 0, 1, ... Or the ids of a token.
  std::vector<std::size_t> numbers;
  bool numbers_are_ids = false;
};

// Whether the first line of a table has names: a cell that is no number, and numbers only beside names of
// layers, experts and steps, as ids of experts.
bool is_line_of_names(const Cells& cells);
// Whether the first line only counts the columns from 0 on, as pandas names them; behind a blank, which is
// above an index of the lines, or at least three of them.
bool is_line_of_ids(const Cells& cells);

// Throws ParseError, with the names in question, if they do not say what the columns are; `where` is "line
// 1".
TableColumns columns_of_names(const Cells& names, const std::string& file, const std::string& where);

// Returns the names that --columns gives to so many columns: "layer,k..." is layer, k_0, k_1. Throws
// InvalidArgument, or ParseError as columns_of_names() does.
TableColumns columns_of_option(std::string_view columns, std::size_t count, const std::string& file);

// Throws as read_recording() does.
FoundRouting find_in_table(std::string_view text, const std::string& file, const ReadOptions& options);

// Whole numbers until one is not.
struct TableNumbers {
  void add(const TableNumber& number);
  std::int64_t size() const { return fractional ? std::ssize(reals) : std::ssize(wholes); }
  // The numbers of so many lines of equal length, of which nobody says what they are.
  FoundRouting nameless(std::int64_t lines, const std::string& file, const ReadOptions& options) &&;

  bool fractional = false;
  std::vector<std::int64_t> wholes = {};
  std::vector<double> reals = {};
};

// The lines of a table whose columns are known.
class NamedTable {
 public:
  NamedTable(TableColumns columns, std::string file);

  // Throws ParseError, naming line and column: a cell that is no number, no id or negative, or an index that
  // does not count the lines.
  void add(const Cells& cells, std::int64_t line);

  // Layers in ascending order. Counts of several ranks are added up, and of several steps unless these are to
  // be kept; steps are then in the order in which they are met. A long table leaves out what nobody chose, so
  // that num_experts may say more than its largest id. Throws ParseError: a layer, expert or token
  // that is there twice with no step, rank or the like to tell them apart.
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
  // Which of the texts that some columns had so far a line has there, from 0 on.
  using Texts = std::unordered_map<std::string, int>;

  static int number_of(const Cells& cells, const std::vector<std::size_t>& columns, Texts& texts);
  bool has_lines_apart() const { return !columns_.steps.empty() || !columns_.parts.empty(); }
  void number_tokens();
  void require_no_doubles() const;
  std::size_t num_experts_of(const ReadOptions& options) const;
  // [steps, layers, experts], of one step where they are added up.
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
