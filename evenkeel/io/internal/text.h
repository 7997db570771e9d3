// Files of text, held whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "evenkeel/io/byte_source.h"

namespace evenkeel::internal {

inline constexpr std::int64_t max_text_bytes = std::int64_t{256} << 20;

// At most so many of its first bytes.
std::string beginning_of(const ByteSource& source, std::int64_t most);
// Throws ParseError if it is longer; `kind` is how that calls it ("JSON").
std::string read_text(const ByteSource& source, std::string_view kind);

// Calls `take` with all of a file, a piece at a time, until it returns false. Each piece begins with the last
// `overlap` bytes of the one before, so that what is no longer than one more is whole in some piece.
void for_each_piece(const ByteSource& source, std::size_t overlap,
                    const std::function<bool(std::string_view)>& take);
// Whether `words` stand anywhere in a file, all of which is read, in pieces.
bool mentions(const ByteSource& source, std::string_view words);

// Without the mark that some programs begin their UTF-8 with.
std::string_view without_mark(std::string_view text);

}  // namespace evenkeel::internal
