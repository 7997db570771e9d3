// The terms that active memory is made of, each linear in tokens and rows: what Table 2 lists, and the extra
// terms.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel::internal {

struct ActiveRow {
  std::string_view name;
  std::string_view source;
  // Numbers kept for each token of a sequence, for each token of a chunk, and for each row received: in a
  // chunk, or in all of them where none is computed again.
  std::int64_t of_token = 0;
  std::int64_t of_chunk_token = 0;
  std::int64_t of_received = 0;
  bool of_all_chunks = false;
  std::int64_t bytes_per_number = 0;
  // How many times it is there.
  std::int64_t copies = 1;
  // Bytes on one device that do not depend on tokens.
  std::int64_t constant_bytes = 0;
};

// Of a layer: the paper's Table 2, or the tensors that frameworks keep (kept_tensors.cpp).
std::vector<ActiveRow> paper_rows(const MemoryModel& memory, int stage);
// The one layer that is computed again, and whose gradients are there, is one with experts, or a dense one.
enum class OneLayer { with_experts, dense };
std::vector<ActiveRow> kept_tensors(const MemoryModel& memory, int stage, OneLayer one);

// The width of the outputs of gate and up, or of up alone.
std::int64_t gate_and_up_width(const ModelDescription& model, std::int64_t width);
// Whether a device keeps every layer's tensors, rather than one layer's, which is computed again.
bool keeps_every_layer(const MemorySetup& setup);

// All of a stage.
std::vector<ActiveRow> active_rows(const MemoryModel& memory, int stage,
                                   OneLayer one = OneLayer::with_experts);

}  // namespace evenkeel::internal
