#include "evenkeel/io/internal/text.h"

#include <fmt/format.h>

#include <span>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

std::string read_text(const ByteSource& source, std::string_view kind) {
  if (source.size() > max_text_bytes)
    throw ParseError(
        source.name(), "",
        fmt::format("is {} of {} bytes; at most {} are read", kind, source.size(), max_text_bytes));
  std::string text(static_cast<std::size_t>(source.size()), '\0');
  source.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

}  // namespace evenkeel::internal
