// Sizes as people write and read them: "512MiB", "1.5 GiB", "20 GB".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace evenkeel {

// Reads a non-negative number with an optional unit: B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB,
// TiB (powers of 1024); no unit means bytes. Throws InvalidArgument, naming `what`.
std::int64_t parse_bytes(std::string_view text, std::string_view what);

// Writes bytes with the largest binary unit that keeps the number at least 1: "61.2 MiB".
std::string format_bytes(std::int64_t bytes);
// Rounded up, for a size that must be enough.
std::string format_bytes_up(std::int64_t bytes);

}  // namespace evenkeel
