// The number of chunks in each step and layer of a training run, chosen from the rows that ranks received
// there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/training_memory/fit.h"

namespace evenkeel {

// Counts as in a file: rows of the fullest rank, [steps, layers], or assignments, [steps, layers, experts].
// For the latter, each rank is assumed to have an equal part of the experts.
struct RecordedCounts {
  std::string file;
  std::string array;  // the array's name in the file
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> values;
};

// The rows that the fullest rank received, [steps, layers].
struct ReceivedHistory {
  std::int64_t layers = 0;
  std::int64_t first_step = 0;
  std::vector<std::int64_t> rows = {};

  std::int64_t steps() const { return layers == 0 ? 0 : std::ssize(rows) / layers; }
};

// Throws ParseError if layers or experts differ from the model's, or a value is not a valid count.
ReceivedHistory received_history(const RecordedCounts& counts, const MemoryModel& memory);
// The part of the history with steps [begin, end).
ReceivedHistory cut(const ReceivedHistory& history, std::int64_t begin, std::int64_t end);

struct ChunkHistory {
  std::int64_t layers = 0;
  std::int64_t first_step = 0;
  std::vector<MactChoice> choices = {};  // [steps, layers]

  std::int64_t steps() const { return layers == 0 ? 0 : std::ssize(choices) / layers; }
  const MactChoice& at(std::int64_t step, std::int64_t layer) const {
    return choices[static_cast<std::size_t>(step * layers + layer)];
  }
};

// Chooses the number of chunks of each layer, with the memory that its stage has.
ChunkHistory choose_chunks(const ReceivedHistory& history, const MemoryModel& memory, const Fit& fit,
                           const DeviceMemory& device);

}  // namespace evenkeel
