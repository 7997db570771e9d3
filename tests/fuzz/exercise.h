// What each fuzz target does with bytes, and what the replay test does with the corpus: read all that can be
// read. Every refusal must be a ParseError (or, of a profile too big for its transitions, Unsupported);
// anything else that is thrown gets out.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace evenkeel::fuzz {

enum class Outcome { read, refused };

Outcome exercise_safetensors(std::span<const std::byte> bytes);
Outcome exercise_npy(std::span<const std::byte> bytes);
Outcome exercise_npz(std::span<const std::byte> bytes);
Outcome exercise_json(std::span<const std::byte> bytes);
Outcome exercise_trace(std::span<const std::byte> bytes);
// As each of the files of a checkpoint that are parsed: config.json (for its experts and for its sizes), the
// index, the map, a safetensors header.
Outcome exercise_checkpoint(std::span<const std::byte> bytes);
Outcome exercise_pickle(std::span<const std::byte> bytes);
Outcome exercise_recording(std::span<const std::byte> bytes);
Outcome exercise_foreign(std::span<const std::byte> bytes);
Outcome exercise_topology(std::span<const std::byte> bytes);
Outcome exercise_trained_layer(std::span<const std::byte> bytes);
Outcome exercise_cost(std::span<const std::byte> bytes);

// By the name of a target: "safetensors", "npy", ... as tests/fuzz/run.sh lists them.
Outcome exercise(std::string_view target, std::span<const std::byte> bytes);

}  // namespace evenkeel::fuzz
