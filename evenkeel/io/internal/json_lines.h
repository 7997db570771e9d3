// JSON lines: one JSON text a line, read a line at a time, so that the file may be longer than memory.
#pragma once

#include <cstdint>
#include <functional>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

// Calls `take` with every line that is not blank and its number, from 1. Throws ParseError with the line's
// number if one is not JSON, or above max_text_bytes.
void for_each_json_line(const ByteSource& source,
                        const std::function<void(JsonDocument&&, std::int64_t)>& take);

}  // namespace evenkeel::internal
