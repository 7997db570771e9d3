// A recorded trace held in memory, and the parts of it that a study compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/routing/trace.h"

namespace evenkeel::study {

// Some sequences of a trace, one after the other.
struct Recording {
  int num_layers = 0;
  int top_k = 0;
  int num_experts = 0;
  std::vector<std::int32_t> ids;               // [tokens, layers, k]
  std::vector<std::int64_t> sequence_offsets;  // [sequences + 1]

  std::int64_t num_tokens() const { return sequence_offsets.back(); }
  int num_sequences() const { return static_cast<int>(sequence_offsets.size()) - 1; }
  MemoryTrace trace() const;
};

// Reads a trace without the first `dropped` tokens of every sequence.
Recording read_recording(const std::string& path, std::int64_t dropped);
// The sequences that `chosen` lists, in that order.
Recording sequences(const Recording& recording, const std::vector<int>& chosen);
// The sequences first, first + stride, ... below end.
Recording every(const Recording& recording, int first, int stride, int end);
// The same sequences in a random order.
Recording shuffled(const Recording& recording, std::uint64_t seed);
Recording first_tokens(const Recording& recording, std::int64_t tokens);
// Consecutive windows of `tokens`; an incomplete last window is dropped. A sequence is cut where a window
// ends.
std::vector<Recording> windows(const Recording& recording, std::int64_t tokens);

}  // namespace evenkeel::study
