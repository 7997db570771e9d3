// Tables and bars for people: at most 100 columns wide.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

// Columns as wide as their widest cell. The first is set left, the others right. Cells are shown as
// printable() has them.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { add(std::move(head)); }
  void add(std::vector<std::string> row);
  // One line a row, each indented by `indent`.
  std::string text(int indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A bar whose length is to `width` as value is to whole, in eighths of a column.
std::string bar(std::int64_t value, std::int64_t whole, int width);
// Columns that the text takes on a terminal.
std::size_t display_width(std::string_view text);
// With blanks behind it, so that it takes at least `width` columns.
std::string padded(std::string text, std::size_t width);

// Loads of each rank before and after, as bars on one scale.
std::string load_picture(const std::vector<std::int64_t>& before, const std::vector<std::int64_t>& after,
                         const std::string& before_name, const std::string& after_name);

}  // namespace evenkeel
