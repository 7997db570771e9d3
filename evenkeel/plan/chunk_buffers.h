// The sizes of a chunk's buffers on a rank. exchange/ and layer/ allocate by these functions, and budget/
// adds up the buffers that are live at one time, so the bytes counted are the bytes allocated.
#pragma once

#include <algorithm>
#include <cstdint>

namespace evenkeel {

// Rows and positions that a rank sends and receives in a chunk. A position is an assignment. Positions "here"
// are computed on this rank. Positions "elsewhere" are this rank's own assignments that other ranks compute.
// A row is a token, counted once for each rank that it goes to.
struct ChunkLoad {
  std::int64_t tokens = 0;
  std::int64_t assignments = 0;       // of this rank's tokens
  std::int64_t assignments_kept = 0;  // this rank's own assignments that are computed here
  std::int64_t positions_here = 0;
  std::int64_t rows_here = 0;
  // rows here from other ranks; this rank's own rows stay in the caller's memory
  std::int64_t rows_received = 0;
  std::int64_t rows_elsewhere = 0;
  std::int64_t groups = 0;  // experts that this rank computes
  // Positions here of this rank's own tokens at experts that the plan splits, and the number of these
  // experts.
  std::int64_t own_split = 0;
  std::int64_t own_runs = 0;

  std::int64_t positions_elsewhere() const { return assignments - assignments_kept; }
};

// The numbers that the sizes depend on besides the load.
struct ExchangeShape {
  int num_ranks = 1;
  int top_k = 1;
  std::int64_t hidden = 0;         // elements of a row
  std::int64_t element_bytes = 4;  // of one element, in the layer's type

  std::int64_t row_bytes() const { return hidden * element_bytes; }
};

namespace chunk_buffers {

inline constexpr std::int64_t kIndex = 4;   // bytes of a row, slot or token number
inline constexpr std::int64_t kNumber = 4;  // bytes of a router weight, a sum or a gradient in f32

// The tables of a Dispatched (exchange/dispatched.h), all in one buffer.
inline std::int64_t routes(const ExchangeShape& shape, const ChunkLoad& load) {
  constexpr std::int64_t kPeer = 4;   // numbers for each rank
  constexpr std::int64_t kGroup = 3;  // numbers for each group
  const std::int64_t choices = load.tokens * shape.top_k;
  return kIndex * (kPeer * shape.num_ranks + kGroup * load.groups + 2 * choices + load.assignments +
                   2 * load.positions_here);
}

// The index messages sent and received, from which the tables are made; the assignments that the messages
// describe; and, for each rank, how much of its message was read.
inline std::int64_t messages(const ExchangeShape& shape, const ChunkLoad& load) {
  return kIndex * (load.positions_here + load.positions_elsewhere() + load.assignments + 3 * shape.num_ranks);
}

// Scratch memory used while the messages are made.
inline std::int64_t routing(const ChunkLoad& load) {
  return kIndex * load.tokens;
}

// Other ranks' rows, or their gradients.
inline std::int64_t received_rows(const ExchangeShape& shape, const ChunkLoad& load) {
  return load.rows_received * shape.row_bytes();
}

inline std::int64_t rows_to_send(const ExchangeShape& shape, const ChunkLoad& load) {
  return load.rows_elsewhere * shape.row_bytes();
}

// Rows of results held at the same time: all positions here and elsewhere, but of the own split positions
// only `split_at_once`.
inline std::int64_t result_rows(const ChunkLoad& load, std::int64_t split_at_once) {
  return load.positions_here - load.own_split + load.positions_elsewhere() + split_at_once;
}

// The row of each position's result. Needed only if not all results are held at the same time.
inline std::int64_t result_index(const ChunkLoad& load) {
  return load.own_runs > 0 ? kIndex * load.positions_here : 0;
}

// The router weight of each position, here and elsewhere, and its gradient.
inline std::int64_t router_weights(const ChunkLoad& load) {
  return 2 * kNumber * (load.positions_here + load.positions_elsewhere());
}

// Rows whose gradients are summed in a buffer of the chunk. In f32, gradients of the rank's own rows are
// summed in the caller's memory instead.
inline std::int64_t summed_rows(const ExchangeShape& shape, const ChunkLoad& load) {
  return shape.element_bytes == kNumber ? load.rows_received : load.rows_here;
}

// Gradients of rows. While they are summed they are f32. Afterwards they have the layer's type and are
// followed by the gradients that come home.
inline std::int64_t row_gradients(const ExchangeShape& shape, const ChunkLoad& load) {
  const std::int64_t summed = summed_rows(shape, load);
  return std::max(summed * shape.hidden * kNumber, (summed + load.rows_elsewhere) * shape.row_bytes());
}

// The experts and router weights of `tokens` tokens, held until backward.
inline std::int64_t choices(int top_k, std::int64_t tokens) {
  return tokens * top_k * (kIndex + kNumber);
}

}  // namespace chunk_buffers

}  // namespace evenkeel
