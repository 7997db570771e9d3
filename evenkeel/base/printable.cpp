#include "evenkeel/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace evenkeel {

namespace {

struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;  // 0: not the start of a valid character
};

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u;
}

// The first character of a non-empty text. Overlong forms, surrogates and codes above U+10FFFF are invalid.
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  char32_t code = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!continues(text[i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (overlong || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return {};
  return {code, bytes};
}

bool is_visible(char32_t code) {
  const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool turns_direction = code == 0x61c || code == 0x200e || code == 0x200f ||
                               (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  const bool breaks_line = code == 0x2028 || code == 0x2029;
  return !control && !turns_direction && !breaks_line;
}

std::string escape(char32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  const auto number = static_cast<std::uint32_t>(code);
  return code < 0x80 ? fmt::format("\\x{:02x}", number) : fmt::format("\\u{:04x}", number);
}

std::string escaped(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character first = first_character(text);
    const std::size_t bytes = std::max<std::size_t>(first.bytes, 1);
    if (first.bytes == 0)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    else if (is_visible(first.code) || (keep_lines && first.code == '\n'))
      out += text.substr(0, bytes);
    else
      out += escape(first.code);
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return escaped(text, false);
}

std::string printable_lines(std::string_view text) {
  return escaped(text, true);
}

std::string shortened(std::string_view text, std::size_t most_bytes) {
  constexpr std::string_view dots = "...";
  if (text.size() <= most_bytes) return std::string(text);
  const std::size_t kept = most_bytes - std::min(most_bytes, dots.size());
  // The beginning of a text names a thing, and the end says what is wrong with it: both are kept.
  std::size_t head = kept - kept / 3;
  std::size_t tail = text.size() - kept / 3;
  while (head > 0 && continues(text[head])) --head;
  while (tail < text.size() && continues(text[tail])) ++tail;
  return std::string(text.substr(0, head)).append(dots).append(text.substr(tail));
}

}  // namespace evenkeel
