// The work of each fuzz target, and of the replay test, on the bytes of an input: it reads everything that is
// readable. A refusal must be a ParseError with a short message (or Unsupported, if a profile is too big to
// have transitions). Any other exception propagates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace evenkeel::fuzz {

enum class Outcome { read, refused };

inline constexpr std::size_t max_message_bytes = 4096;

// The most that reading a file may cost, whatever the file claims. The memory covers the widest token row
// (2^20 assignments as int64, int32 and float), and arrays held whole. Those may have 1 MiB + 64 times the
// file's bytes as int8, and 8 times as many bytes as int64 numbers. The CPU time covers an archive member
// that expands to a thousand times its compressed size.
constexpr std::int64_t allowed_bytes(std::size_t file_bytes) {
  return (32 << 20) + 512 * static_cast<std::int64_t>(file_bytes);
}
constexpr double allowed_seconds(std::size_t file_bytes) {
  return 0.5 + 50e-6 * static_cast<double>(file_bytes);
}

// `target` is a name from the list in tests/fuzz/run.sh: "safetensors", "npy", ... The target "checkpoint"
// reads the bytes as each kind of file that a checkpoint has and that we parse: config.json (for the experts
// and for the sizes), the index, the map, and a safetensors header.
Outcome exercise(std::string_view target, std::span<const std::byte> bytes);

}  // namespace evenkeel::fuzz
