// Chunk counts over the steps of a training run, chosen from the rows that ranks received in each step and
// layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/training_memory/fit.h"

namespace evenkeel::cli {

// Rows of the fullest rank, [steps, layers].
struct ReceivedHistory {
  std::int64_t layers = 0;
  std::vector<std::int64_t> rows;

  std::int64_t steps() const { return layers == 0 ? 0 : std::ssize(rows) / layers; }
};

// The array `counts` of a file, or its only one: [steps, layers] as above, or [steps, layers, experts] of
// assignments, which ranks with equal parts of the experts receive. Throws ParseError if layers or experts
// are not those of the model.
ReceivedHistory read_history(const std::string& path, const MemoryModel& memory);

// "A:B", the steps that are kept; throws InvalidArgument, naming --steps.
ReceivedHistory cut(ReceivedHistory history, const std::string& steps);

struct ChunkHistory {
  std::int64_t layers = 0;
  std::vector<MactChoice> choices;  // [steps, layers]

  std::int64_t steps() const { return layers == 0 ? 0 : std::ssize(choices) / layers; }
  const MactChoice& at(std::int64_t step, std::int64_t layer) const {
    return choices[static_cast<std::size_t>(step * layers + layer)];
  }
};

// Of each layer by the stage that has it.
ChunkHistory choose_chunks(const ReceivedHistory& history, const MemoryModel& memory, const Fit& fit,
                           const DeviceMemory& device);

// A row a layer, a column a step; of many steps the mean of a block of them.
std::string picture(const ChunkHistory& history, std::int64_t first_step);

}  // namespace evenkeel::cli
