#include "evenkeel/io/internal/json_scan.h"

namespace evenkeel::internal {

void for_each_outer_key(std::string_view text, const std::function<bool(std::string_view)>& take) {
  scan_json(text, [&](const JsonToken& token) {
    if (token.kind == JsonToken::Kind::close) return token.depth > 0;
    if (token.kind != JsonToken::Kind::text || token.depth != 1) return true;
    const std::size_t behind = text.find_first_not_of(" \t\r\n", token.end);
    if (behind == std::string_view::npos || text[behind] != ':') return true;
    return take(text.substr(token.begin + 1, token.end - token.begin - 2));
  });
}

}  // namespace evenkeel::internal
