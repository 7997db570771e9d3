#include "evenkeel/io/internal/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

constexpr std::int64_t block_bytes = std::int64_t{1} << 20;

// Lines out of blocks of a source.
class Lines {
 public:
  explicit Lines(const ByteSource& source) : source_(source) {}

  // The next line without its end; false when there is none.
  bool next(std::string_view& line) {
    std::size_t end = text_.find('\n', taken_);
    while (end == std::string::npos && read_ < source_.size()) {
      forget_taken();
      const std::size_t searched = text_.size();
      if (std::ssize(text_) > max_text_bytes)
        throw ParseError(source_.name(), fmt::format("byte {}", file_begin_),
                         fmt::format("a line of more than {} bytes", max_text_bytes));
      fill();
      end = text_.find('\n', searched);
    }
    if (end == std::string::npos && taken_ == text_.size()) return false;
    const std::size_t begin = taken_;
    line_begin_ = file_begin_ + static_cast<std::int64_t>(begin);
    taken_ = end == std::string::npos ? text_.size() : end + 1;
    line = std::string_view(text_).substr(begin, (end == std::string::npos ? taken_ : end) - begin);
    return true;
  }

  // Of the line that was given out last, in the file.
  std::int64_t begin() const { return line_begin_; }

 private:
  // Once for all lines of a block, since what follows them moves.
  void forget_taken() {
    text_.erase(0, taken_);
    file_begin_ += static_cast<std::int64_t>(taken_);
    taken_ = 0;
  }

  void fill() {
    const std::int64_t count = std::min(block_bytes, source_.size() - read_);
    const std::size_t before = text_.size();
    text_.resize(before + static_cast<std::size_t>(count));
    source_.read(read_, std::as_writable_bytes(std::span(text_)).subspan(before));
    read_ += count;
  }

  const ByteSource& source_;
  std::string text_;
  std::size_t taken_ = 0;        // of it, the lines that were given out
  std::int64_t file_begin_ = 0;  // where the text stands
  std::int64_t line_begin_ = 0;
  std::int64_t read_ = 0;
};

}  // namespace

void for_each_json_line(const ByteSource& source,
                        const std::function<void(JsonDocument&&, std::int64_t)>& take) {
  Lines lines(source);
  std::string_view line;
  for (std::int64_t number = 1; lines.next(line); ++number) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) continue;
    if (line.substr(first).find_last_not_of(" \t\r") == 0 && (line[first] == '{' || line[first] == '['))
      throw ParseError(source.name(), fmt::format("line {}", number),
                       "begins a record that goes over several lines; write each in one, as jq -c does");
    take(parse_json(line, fmt::format("{}: line {}", source.name(), number), lines.begin()), number);
  }
}

}  // namespace evenkeel::internal
