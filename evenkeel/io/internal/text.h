// Reads text files into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "evenkeel/io/byte_source.h"

namespace evenkeel::internal {

inline constexpr std::int64_t max_text_bytes = std::int64_t{256} << 20;

// The first `most` bytes of a file, or all if it is shorter.
std::string beginning_of(const ByteSource& source, std::int64_t most);
// Reads a whole file. Throws ParseError if it is longer than max_text_bytes; messages call it `kind`
// ("JSON").
std::string read_text(const ByteSource& source, std::string_view kind);

// Calls `take` with a file piece by piece until it returns false. Each piece begins with the last `overlap`
// bytes of the one before, so every text of up to overlap + 1 bytes is whole in some piece.
void for_each_piece(const ByteSource& source, std::size_t overlap,
                    const std::function<bool(std::string_view)>& take);
// Whether a file contains `words` anywhere. Reads the file in pieces until it finds them.
bool mentions(const ByteSource& source, std::string_view words);

// Removes the byte order mark with which some programs begin UTF-8.
std::string_view without_mark(std::string_view text);

}  // namespace evenkeel::internal
