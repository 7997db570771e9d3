// Finds for each stage whether a training step fits a device and with how many chunks, and finds the longest
// sequence that fits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "evenkeel/training_memory/mact.h"
#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel {

struct DeviceMemory {
  std::int64_t available_bytes = 0;               // alpha M_GPU
  std::optional<std::int64_t> static_bytes = {};  // measured bytes, for every stage; default: the model's
  std::vector<std::int64_t> bins = {1, 2, 4, 8};
};

// The share `thousandths` / 1000 (alpha) of a device's bytes.
std::int64_t share_of(std::int64_t device_bytes, std::int64_t thousandths);

// The rows that the fullest device receives (s'). If empty, those that the worst routing would send to it.
using ReceivedRows = std::optional<std::int64_t>;

struct StageFit {
  int stage = 0;
  std::int64_t static_bytes = 0;
  std::int64_t active_bytes = 0;   // with the chosen number of chunks
  std::int64_t received = 0;       // s'
  std::int64_t most_received = 0;  // s'_max; most_rows if the stage has no experts
  MactChoice choice;
  bool fits = false;  // by Eq. 3, with the chosen number of chunks

  std::int64_t total_bytes() const { return static_bytes + active_bytes; }
};

// fit_stage(), fit() and longest_sequence() throw InvalidArgument if the bins are not chunk counts in
// ascending order, or if the number of received rows is below 0.
StageFit fit_stage(const MemoryModel& memory, int stage, ReceivedRows received, const DeviceMemory& device);

// The number of chunks that the stage needs for `received` rows, and the chosen bin. With only the paper's
// terms, the number is that of Eq. 8 and 9. Otherwise it is the smallest with which everything counted fits.
MactChoice choose_chunks(const MemoryModel& memory, const StageFit& stage, std::int64_t received,
                         const DeviceMemory& device);

struct Fit {
  std::vector<StageFit> stages;
  int tightest = 0;   // the stage with the most chunks; if several, that with the most bytes
  bool fits = false;  // all stages fit

  const StageFit& tightest_stage() const { return stages[static_cast<std::size_t>(tightest)]; }
};

Fit fit(const MemoryModel& memory, ReceivedRows received, const DeviceMemory& device);

// The longest sequence with which every stage fits if everything else stays the same; 0 if there is none. The
// number of received rows grows in proportion to the length.
std::int64_t longest_sequence(const MemoryModel& memory, ReceivedRows received, const DeviceMemory& device);

}  // namespace evenkeel
