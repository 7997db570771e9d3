// The work of each fuzz target on bytes, and of the replay test on the corpus: it reads all that can be read.
// Every refusal must be a ParseError (or, of a profile too big for its transitions, Unsupported) whose
// message is short; anything else that is thrown gets out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace evenkeel::fuzz {

enum class Outcome { read, refused };

inline constexpr std::size_t max_message_bytes = 4096;

// The most that any file may cost, whatever it claims. Memory: the widest token row (2^20 assignments as
// int64, int32 and float), and for arrays held whole a multiple of the file (compressed int8 become int64: 64
// x 8, of 1 MiB + the file). Time of a processor: reading a member of an archive that unpacks to a thousand
// times its size.
constexpr std::int64_t allowed_bytes(std::size_t file_bytes) {
  return (32 << 20) + 512 * static_cast<std::int64_t>(file_bytes);
}
constexpr double allowed_seconds(std::size_t file_bytes) {
  return 0.5 + 50e-6 * static_cast<double>(file_bytes);
}

// By the name of a target: "safetensors", "npy", ... as tests/fuzz/run.sh lists them. "checkpoint" reads
// bytes as each of the files of a checkpoint that are parsed: config.json (for its experts and for its
// sizes), the index, the map, a safetensors header.
Outcome exercise(std::string_view target, std::span<const std::byte> bytes);

}  // namespace evenkeel::fuzz
