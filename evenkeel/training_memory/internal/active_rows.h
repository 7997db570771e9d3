// The terms of active memory: those of Table 2, and the extra terms. Each term is linear in tokens and rows.
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
  // The number of copies that are held.
  std::int64_t copies = 1;
  // Bytes on one device that do not depend on tokens.
  std::int64_t constant_bytes = 0;
};

// The rows of one layer: paper_rows() those of the paper's Table 2, kept_tensors() the tensors that
// frameworks keep.
std::vector<ActiveRow> paper_rows(const MemoryModel& memory, int stage);
// The kind of the single layer that is being recomputed and holds gradients.
enum class OneLayer { with_experts, dense };
std::vector<ActiveRow> kept_tensors(const MemoryModel& memory, int stage, OneLayer one);

// The width of the outputs of gate and up together, or of up alone if there is no gate.
std::int64_t gate_and_up_width(const ModelDescription& model, std::int64_t width);
// True if a device keeps the tensors of every layer. False if it keeps only those of the one layer being
// recomputed.
bool keeps_every_layer(const MemorySetup& setup);

// All rows of a stage.
std::vector<ActiveRow> active_rows(const MemoryModel& memory, int stage,
                                   OneLayer one = OneLayer::with_experts);

}  // namespace evenkeel::internal
