// JSON lines: one JSON text a line.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

namespace {

constexpr std::int64_t block_bytes = std::int64_t{1} << 20;

// Calls take(line, begin) with every line without its end, and where it stands in the file.
template <class Take>
void for_each_line(const ByteSource& source, const Take& take) {
  std::string text;  // from `begin` of the file on, without lines that were taken
  std::int64_t begin = 0;
  for (std::int64_t read = 0; read < source.size();) {
    if (std::ssize(text) > max_text_bytes)
      throw parse_error(source.name(), fmt::format("byte {}", begin), "a line of more than {} bytes",
                        max_text_bytes);
    const std::size_t searched = text.size();
    const std::int64_t count = std::min(block_bytes, source.size() - read);
    text.resize(searched + static_cast<std::size_t>(count));
    source.read(read, std::as_writable_bytes(std::span(text)).subspan(searched));
    read += count;
    std::size_t taken = 0;
    for (std::size_t end = text.find('\n', searched); end != std::string::npos;
         end = text.find('\n', taken)) {
      take(std::string_view(text).substr(taken, end - taken), begin + static_cast<std::int64_t>(taken));
      taken = end + 1;
    }
    // Once for all lines of a block, since what follows them moves.
    text.erase(0, taken);
    begin += static_cast<std::int64_t>(taken);
  }
  if (!text.empty()) take(std::string_view(text), begin);
}

}  // namespace

void for_each_json_line(const ByteSource& source,
                        const std::function<void(JsonDocument&&, std::int64_t)>& take) {
  std::int64_t number = 0;
  for_each_line(source, [&](std::string_view line, std::int64_t begin) {
    ++number;
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return;
    if (line.substr(first).find_last_not_of(" \t\r") == 0 && (line[first] == '{' || line[first] == '['))
      throw parse_error(source.name(), fmt::format("line {}", number),
                        "begins a record that goes over several lines; write each in one, as jq -c does");
    take(parse_json(line, fmt::format("{}: line {}", source.name(), number), begin), number);
  });
}

}  // namespace evenkeel::internal
