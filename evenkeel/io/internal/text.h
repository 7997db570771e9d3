// Files of text, held whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "evenkeel/io/byte_source.h"

namespace evenkeel::internal {

inline constexpr std::int64_t max_text_bytes = std::int64_t{256} << 20;

// At most so many of its first bytes.
std::string beginning_of(const ByteSource& source, std::int64_t most);
// Throws ParseError if it is longer; `kind` is how that calls it ("JSON").
std::string read_text(const ByteSource& source, std::string_view kind);

// Whether `words` stand anywhere in a file, all of which is read, in pieces.
bool mentions(const ByteSource& source, std::string_view words);

// Without the mark that some programs begin their UTF-8 with.
std::string_view without_mark(std::string_view text);

}  // namespace evenkeel::internal
