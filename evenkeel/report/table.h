// Tables and bars for people: at most 100 columns wide.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

// Columns are as wide as their widest cell. The first is left-aligned, the others right-aligned. Cells go
// through printable().
class Table {
 public:
  explicit Table(std::vector<std::string> head) { add(std::move(head)); }
  void add(std::vector<std::string> row);
  // One line per row, each indented by `indent`.
  std::string text(int indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A bar of value / whole * width columns, rounded to eighths of a column.
std::string bar(std::int64_t value, std::int64_t whole, int width);
// The number of columns that the text takes on a terminal.
std::size_t display_width(std::string_view text);
// Adds blanks at the end until the text is `width` columns wide.
std::string padded(std::string text, std::size_t width);

// Each rank's load before and after, as bars on one scale.
std::string load_picture(const std::vector<std::int64_t>& before, const std::vector<std::int64_t>& after,
                         const std::string& before_name, const std::string& after_name);

}  // namespace evenkeel
