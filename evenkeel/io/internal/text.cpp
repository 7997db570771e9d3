#include "evenkeel/io/internal/text.h"

#include <algorithm>
#include <span>

#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

std::string beginning_of(const ByteSource& source, std::int64_t most) {
  std::string text(static_cast<std::size_t>(std::min(source.size(), most)), '\0');
  source.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string read_text(const ByteSource& source, std::string_view kind) {
  if (source.size() > max_text_bytes)
    throw parse_error(source.name(), "", "is {} of {} bytes; at most {} are read", kind, source.size(),
                      max_text_bytes);
  return beginning_of(source, max_text_bytes);
}

void for_each_piece(const ByteSource& source, std::size_t overlap,
                    const std::function<bool(std::string_view)>& take) {
  constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
  std::string text;
  for (std::int64_t at = 0; at < source.size();) {
    const std::size_t kept = std::min(text.size(), overlap);
    text.erase(0, text.size() - kept);
    const std::int64_t count = std::min(piece_bytes, source.size() - at);
    text.resize(kept + static_cast<std::size_t>(count));
    source.read(at, std::as_writable_bytes(std::span(text)).subspan(kept));
    at += count;
    if (!take(text)) return;
  }
}

bool mentions(const ByteSource& source, std::string_view words) {
  bool found = false;
  for_each_piece(source, words.size() - 1, [&](std::string_view piece) {
    found = piece.find(words) != std::string_view::npos;
    return !found;
  });
  return found;
}

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

}  // namespace evenkeel::internal
