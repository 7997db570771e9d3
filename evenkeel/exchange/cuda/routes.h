// The tables by which a step's rows find their way on devices: what plan/routes.h, their oracle, numbers on
// the host, in flat arrays that kernels write and other ranks' kernels read.
//
// Slices    A rank's tokens are cut, in order, into the same number of slices on every rank; a chunk is a
//           run of them. Assignments are counted and ranked slice by slice, once a step, so that a chunk
//           needs no count of its own.
// Messages  Where the host sends index messages, a rank leaves them in its outbox, which the others read.
//           Rows are read by those who compute them and results by those who wanted them: nothing is
//           packed, and no size has to be known to the host.
// Order     Of message entries, rows and positions within a group: that of exchange/. Groups come natives
//           first, then what is borrowed in the plan's order.
#pragma once

#include <cstdint>

#include "evenkeel/device/cuda/team.h"
#include "evenkeel/plan/cuda/step_view.h"

namespace evenkeel::cuda {

// Sizes and numbers that do not change from step to step.
struct RouteShape {
  int num_ranks = 1;
  int num_experts = 1;
  int me = 0;
  int top_k = 1;
  int num_slices = 1;               // a multiple of most_chunks
  int most_chunks = 1;              // a power of two
  int num_natives = 0;              // experts at home here
  int places = 0;                   // borrowed experts at one time
  int rounds = 1;                   // so often the places are filled
  int most_assignments = 0;         // of this rank's tokens
  std::int32_t most_positions = 0;  // computed here in one chunk

  EVENKEEL_HOST_DEVICE int most_borrowed() const { return places * rounds; }
  EVENKEEL_HOST_DEVICE int num_groups() const { return num_natives + most_borrowed(); }
};

// The choices of this rank's tokens, counted. Lives as long as the step, backward included.
struct SliceView {
  const std::int32_t* experts = nullptr;  // [tokens k], the caller's; -1 for none
  std::int64_t tokens = 0;
  std::int32_t* before = nullptr;          // [slices + 1][E], assignments in the slices before one
  std::uint16_t* rank_in_slice = nullptr;  // [tokens k], among those of its slice to its expert
};

// Tables of a step that follow from what all ranks know. `counts` is that of a chunk of the finest kind:
// [most_chunks][P][E].
struct StepView {
  const std::int32_t* counts = nullptr;
  PlanView plan;
  std::int32_t* num_chunks = nullptr;       // [1], a power of two
  std::int32_t* borrowed_expert = nullptr;  // [most_borrowed] by this rank; -1 for none
  std::int32_t* borrowed_from = nullptr;
  std::int32_t* transfer_place = nullptr;  // of each transfer, which of its receiver's borrowed experts it is
  std::int32_t* group_of = nullptr;        // [E], -1 where not computed here
};

// Tables that a rank leaves for the others, of one chunk.
struct OutboxView {
  std::int32_t* begin = nullptr;  // [P + 1], message entries by destination
  std::int32_t* rows = nullptr;   // [P], rows to each
  std::int32_t* row = nullptr;  // [most_assignments], by entry: which of the rows to its destination it reads
  std::int32_t* token = nullptr;        // [most_assignments], from begin[d]: the token of each row to d
  std::int32_t* assignment = nullptr;   // [most_assignments], by entry: (token, k) of the step
  std::int32_t* in_row = nullptr;       // [P + 1], rows here by source
  std::int32_t* in_position = nullptr;  // [P + 1], positions here by source; results come in this order
};

// Tables that only this rank reads, of one chunk.
struct ChunkView {
  std::int32_t* counts = nullptr;       // [P][E]
  std::int32_t* quota = nullptr;        // by segment of the plan
  std::int32_t* sent = nullptr;         // [P][E], entries before those of an expert in the message to a rank
  std::int32_t* arrived = nullptr;      // [P][E], entries before those of an expert in the message of a rank
  std::int32_t* piece_rank = nullptr;   // where this rank's assignments to an expert go, in order; those of
  std::int32_t* piece_count = nullptr;  //   expert e from segment_begin[e] + e on
  std::int32_t* pieces = nullptr;       // [E]
  std::int32_t* group_begin = nullptr;  // [num_groups + 1], positions
  std::int32_t* entry = nullptr;        // [most_assignments] by assignment: its message entry, -1 for none
  std::int32_t* destination = nullptr;  // [most_assignments] by assignment
  std::int32_t* firsts_before =
      nullptr;  // [most_assignments + 1] by entry: entries before that bring a new row
  std::int32_t* tile_firsts = nullptr;  // [tiles]
  std::int32_t* input_row = nullptr;    // [most_positions] by position, groups one behind the other
  std::int32_t* output_row = nullptr;
};

// Slices [first, end) of a step's chunk; those beyond the last chunk are empty.
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
