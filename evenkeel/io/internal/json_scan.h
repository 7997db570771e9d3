// The tokens of a JSON text, found without understanding them: what a parser needs to know of a text before
// it begins, and what tells one kind of file from another.
//
// Cost       linear, no memory.
// Guarantee  of a text that is JSON exactly its tokens. Of any other text, up to where it stops being JSON.
#pragma once

#include <cstddef>
#include <string_view>

namespace evenkeel::internal {

struct JsonToken {
  enum class Kind { open, close, text, word };
  Kind kind;
  int depth;          // containers that are open around it
  std::size_t begin;  // where it stands; a text with its quotes
  std::size_t end;
};

namespace json_scan_detail {

inline std::size_t end_of_text(std::string_view text, std::size_t begin) {
  for (std::size_t at = begin + 1; at < text.size(); ++at) {
    if (text[at] == '"') return at + 1;
    if (text[at] == '\\') ++at;
  }
  return text.size();
}

inline bool ends_word(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',' || c == ':' || c == '"' || c == '[' ||
         c == ']' || c == '{' || c == '}';
}

}  // namespace json_scan_detail

// Calls `take` with each token until it returns false.
template <class Take>
void scan_json(std::string_view text, Take take) {
  using Kind = JsonToken::Kind;
  int depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    JsonToken token{.kind = Kind::word, .depth = depth, .begin = at, .end = at + 1};
    switch (text[at]) {
      case ' ':
      case '\t':
      case '\n':
      case '\r':
      case ',':
      case ':':
        ++at;
        continue;
      case '[':
      case '{':
        token.kind = Kind::open;
        ++depth;
        break;
      case ']':
      case '}':
        token.kind = Kind::close;
        token.depth = --depth;
        break;
      case '"':
        token.kind = Kind::text;
        token.end = json_scan_detail::end_of_text(text, at);
        break;
      default:
        while (token.end < text.size() && !json_scan_detail::ends_word(text[token.end])) ++token.end;
    }
    if (!take(token)) return;
    at = token.end;
  }
}

}  // namespace evenkeel::internal
