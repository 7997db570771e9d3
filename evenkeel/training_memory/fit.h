// Whether a training step fits a device, stage by stage; with which chunk count; and up to which sequence
// length.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "evenkeel/training_memory/mact.h"
#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel {

struct DeviceMemory {
  std::int64_t available_bytes = 0;               // alpha M_GPU
  std::optional<std::int64_t> static_bytes = {};  // measured, of every stage; default: the model's
  std::vector<std::int64_t> bins = {1, 2, 4, 8};
};

// `thousandths` (alpha) of a device's bytes.
std::int64_t share_of(std::int64_t device_bytes, std::int64_t thousandths);

// Rows that the fullest device receives (s'). If empty, the rows that the worst routing sends.
using ReceivedRows = std::optional<std::int64_t>;

struct StageFit {
  int stage = 0;
  std::int64_t static_bytes = 0;
  std::int64_t active_bytes = 0;   // with the chosen chunks
  std::int64_t received = 0;       // s'
  std::int64_t most_received = 0;  // s'_max; most_rows if the stage has no experts
  MactChoice choice;
  bool fits = false;  // Eq. 3, with the chosen chunks

  std::int64_t total_bytes() const { return static_bytes + active_bytes; }
};

// fit_stage(), fit() and longest_sequence() throw InvalidArgument if bins are not ascending chunk counts, or
// if received rows are below 0.
StageFit fit_stage(const MemoryModel& memory, int stage, ReceivedRows received, const DeviceMemory& device);

// How many chunks the stage needs for `received` rows, and the bin. With the paper's terms alone, as in Eq. 8
// and 9; otherwise the fewest chunks with which everything counted fits.
MactChoice choose_chunks(const MemoryModel& memory, const StageFit& stage, std::int64_t received,
                         const DeviceMemory& device);

struct Fit {
  std::vector<StageFit> stages;
  int tightest = 0;   // the stage with the most chunks; of those the one with the most bytes
  bool fits = false;  // all stages fit

  const StageFit& tightest_stage() const { return stages[static_cast<std::size_t>(tightest)]; }
};

Fit fit(const MemoryModel& memory, ReceivedRows received, const DeviceMemory& device);

// The longest sequence with which every stage fits, all else equal; 0 if there is none. Received rows grow in
// proportion.
std::int64_t longest_sequence(const MemoryModel& memory, ReceivedRows received, const DeviceMemory& device);

}  // namespace evenkeel
