// The terms of active memory, each linear in tokens and rows: those of Table 2, and the extra terms.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel::internal {

struct ActiveRow {
  std::string_view name;
  std::string_view source;
  // Numbers kept for each token of a sequence, for each token of a chunk, and for each received row. Received
  // rows are those of one chunk, or of all chunks if `of_all_chunks` is set.
  std::int64_t of_token = 0;
  std::int64_t of_chunk_token = 0;
  std::int64_t of_received = 0;
  bool of_all_chunks = false;
  std::int64_t bytes_per_number = 0;
  // How many copies are held.
  std::int64_t copies = 1;
  // Bytes on one device that do not depend on tokens.
  std::int64_t constant_bytes = 0;
};

// Rows of one layer. paper_rows(): the paper's Table 2. kept_tensors(): the tensors that frameworks keep.
std::vector<ActiveRow> paper_rows(const MemoryModel& memory, int stage);
// Which kind of layer is the one being recomputed and holding gradients.
enum class OneLayer { with_experts, dense };
std::vector<ActiveRow> kept_tensors(const MemoryModel& memory, int stage, OneLayer one);

// The width of the outputs of gate and up together, or of up alone if there is no gate.
std::int64_t gate_and_up_width(const ModelDescription& model, std::int64_t width);
// True if a device keeps the tensors of every layer; false if only of the one layer being recomputed.
bool keeps_every_layer(const MemorySetup& setup);

// All rows of a stage.
std::vector<ActiveRow> active_rows(const MemoryModel& memory, int stage,
                                   OneLayer one = OneLayer::with_experts);

}  // namespace evenkeel::internal
