// Text tables, such as CSV: lines of cells between commas, semicolons, tabs or spaces.
//
// The first line that is no comment says what stands between cells: a semicolon if it has one, else a comma,
// else a tab, else spaces. Lines end in LF, CRLF or CR; cells may be quoted; lines that begin with # are
// comments, unless it is the error of a spreadsheet, such as #N/A. One separator may end every line.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
// The message about a text that is no number: "'x' is not a number".
std::string not_a_number(std::string_view text);

class TextTable {
 public:
  TextTable(std::string_view text, std::string file);

  // The cells of the next line that is neither blank nor a comment; false if there is none. Valid until the
  // next call. Throws ParseError: a quote that is not closed.
  bool next(std::vector<std::string_view>& cells);
  // Of the line that was given out last, from 1.
  std::int64_t line() const { return number_; }
  // The comment right before that line, without its #; empty if there is none.
  std::string_view comment_before() const { return comment_; }
  // The same cells as next() makes of a line.
  std::vector<std::string_view> cells_of(std::string_view line);

 private:
  bool next_line(std::string_view& line);
  std::string_view quoted(std::string_view& rest);
  char separator_of(std::string_view text) const;
  void split(std::string_view line, std::vector<std::string_view>& cells);

  std::string file_;
  std::string_view rest_;
  std::string_view comment_;
  std::int64_t number_ = 0;
  char separator_ = ',';  // ' ': any number of spaces and tabs
  std::deque<std::string> unescaped_;
};

}  // namespace evenkeel::internal
