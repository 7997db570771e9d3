// Files of text, held whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "evenkeel/io/byte_source.h"

namespace evenkeel::internal {

inline constexpr std::int64_t max_text_bytes = std::int64_t{256} << 20;

// Throws ParseError if it is longer; `kind` is how that calls it ("JSON").
std::string read_text(const ByteSource& source, std::string_view kind);

// Without the mark that some programs begin their UTF-8 with.
std::string_view without_mark(std::string_view text);

}  // namespace evenkeel::internal
