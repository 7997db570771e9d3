// The routing tables of a step on devices: the same numbering as plan/routes.h makes on the host (the tests'
// oracle), in flat arrays that kernels write and other ranks' kernels read.
//
// Slices    Every rank cuts its tokens, in order, into the same number of slices; a chunk is a run of slices.
//           Assignments are counted and numbered by slice once per step, so a chunk needs no count of its
//           own.
// Messages  The host version sends index messages; here a rank leaves them in its outbox, and the others read
//           them. Ranks read the rows that they compute and the results of their own tokens in place: nothing
//           is packed, and the host needs no sizes.
// Order     Message entries, rows and positions within a group are in the same order as in exchange/. Native
//           groups come first, then borrowed ones in the plan's order.
#pragma once

#include <cstdint>

#include "evenkeel/device/cuda/team.h"
#include "evenkeel/plan/cuda/step_view.h"

namespace evenkeel::cuda {

// Sizes that do not change from step to step.
struct RouteShape {
  int num_ranks = 1;
  int num_experts = 1;
  int me = 0;
  int top_k = 1;
  int num_slices = 1;               // a multiple of most_chunks
  int most_chunks = 1;              // a power of two
  int num_natives = 0;              // experts native to this rank
  int borrow_slots = 0;             // how many borrowed experts have memory at a time
  int borrow_rounds = 1;            // how often the slots are filled per chunk
  int most_assignments = 0;         // of this rank's tokens
  std::int32_t most_positions = 0;  // assignments computed here in one chunk

  EVENKEEL_HOST_DEVICE int most_borrowed() const { return borrow_slots * borrow_rounds; }
  EVENKEEL_HOST_DEVICE int num_groups() const { return num_natives + most_borrowed(); }
};

// The expert choices of this rank's tokens, with their counts. Lives as long as the step, backward included.
struct SliceView {
  const std::int32_t* experts = nullptr;  // [tokens k], the caller's; -1 for none
  std::int64_t tokens = 0;
  std::int32_t* before = nullptr;          // [slices + 1][E], assignments in the slices before this one
  std::uint16_t* rank_in_slice = nullptr;  // [tokens k], number among its slice's assignments to its expert
};

// Tables of a step, made from data that all ranks have. `counts` [most_chunks][P][E] are for the finest
// chunks.
struct StepView {
  const std::int32_t* counts = nullptr;
  PlanView plan;
  std::int32_t* num_chunks = nullptr;       // [1], a power of two
  std::int32_t* borrowed_expert = nullptr;  // [most_borrowed], of this rank; -1 for none
  std::int32_t* borrowed_from = nullptr;
  std::int32_t* borrowed_index = nullptr;  // by transfer: its index among the receiver's borrowed experts
  std::int32_t* group_of = nullptr;        // [E], -1 if not computed here
};

// One chunk's tables that a rank makes for the other ranks.
struct OutboxView {
  std::int32_t* begin = nullptr;  // [P + 1], message entries by destination
  std::int32_t* rows = nullptr;   // [P], number of rows to each rank
  std::int32_t* row = nullptr;    // [most_assignments], by entry: its row among the rows to its destination
  std::int32_t* token = nullptr;  // [most_assignments], from begin[d]: the token of each row to d
  std::int32_t* assignment = nullptr;   // [most_assignments], by entry: its (token, k) in the step
  std::int32_t* in_row = nullptr;       // [P + 1], rows here by source
  std::int32_t* in_position = nullptr;  // [P + 1], positions here by source; results come in this order
};

// One chunk's tables that only this rank reads.
struct ChunkView {
  std::int32_t* counts = nullptr;       // [P][E]
  std::int32_t* quota = nullptr;        // by segment of the plan
  std::int32_t* sent = nullptr;         // [P][E], offset of an expert's entries in the message to a rank
  std::int32_t* arrived = nullptr;      // [P][E], offset of an expert's entries in the message from a rank
  std::int32_t* piece_rank = nullptr;   // destinations of this rank's assignments to an expert, in order;
  std::int32_t* piece_count = nullptr;  //   expert e's pieces begin at segment_begin[e] + e
  std::int32_t* pieces = nullptr;       // [E], number of pieces
  std::int32_t* group_begin = nullptr;  // [num_groups + 1], first position of each group
  std::int32_t* entry = nullptr;        // [most_assignments], by assignment: its message entry, -1 for none
  std::int32_t* destination = nullptr;  // [most_assignments], by assignment: its rank, -1 for none
  std::int32_t* firsts_before =
      nullptr;  // [most_assignments + 1], by entry: earlier entries that start a new row
  std::int32_t* tile_firsts = nullptr;  // [tiles], how many entries of a tile start a new row
  std::int32_t* input_row = nullptr;    // [most_positions], by position, group after group
  std::int32_t* output_row = nullptr;
};

// The slices [first, end) of a chunk; empty for chunks beyond the last.
struct ChunkRange {
  int first = 0;
  int end = 0;
};
EVENKEEL_HOST_DEVICE inline ChunkRange slices_of(const RouteShape& shape, int chunk, int num_chunks) {
  if (chunk >= num_chunks) return {shape.num_slices, shape.num_slices};
  const int each = shape.num_slices / num_chunks;
  return {chunk * each, (chunk + 1) * each};
}
EVENKEEL_HOST_DEVICE inline std::int64_t first_token(const RouteShape& shape, std::int64_t tokens,
                                                     int slice) {
  return tokens * slice / shape.num_slices;
}

}  // namespace evenkeel::cuda
