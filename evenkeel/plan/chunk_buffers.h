// The sizes of a chunk's buffers on a rank. exchange/ and layer/ allocate by these functions, and budget/
// adds up those that stand at one time, so that what is counted is what is taken.
#pragma once

#include <algorithm>
#include <cstdint>

namespace evenkeel {

// Rows and positions that a rank sends and receives in a chunk. Positions are assignments: those "here" are
// computed on the rank, those "elsewhere" are its own tokens' on other ranks. Rows are tokens, once for each
// rank that they go to.
struct ChunkLoad {
  std::int64_t tokens = 0;
  std::int64_t assignments = 0;       // of its tokens, those to an expert
  std::int64_t assignments_kept = 0;  // of these, computed here
  std::int64_t positions_here = 0;
  std::int64_t rows_here = 0;
  std::int64_t rows_received = 0;  // of these, other ranks'; its own stay where the caller has them
  std::int64_t rows_elsewhere = 0;
  std::int64_t groups = 0;  // experts that it computes
  // Of the positions here, those of its own tokens at experts that the plan splits, and of how many of these.
  std::int64_t own_split = 0;
  std::int64_t own_runs = 0;

  std::int64_t positions_elsewhere() const { return assignments - assignments_kept; }
};

// The numbers that the sizes depend on besides the load.
struct ExchangeShape {
  int num_ranks = 1;
  int top_k = 1;
  std::int64_t hidden = 0;         // elements of a row
  std::int64_t element_bytes = 4;  // of the layer's type

  std::int64_t row_bytes() const { return hidden * element_bytes; }
};

namespace chunk_buffers {

inline constexpr std::int64_t kIndex = 4;   // bytes of a row, slot or token number
inline constexpr std::int64_t kNumber = 4;  // of a router weight, a sum or a gradient, f32

// The tables of a Dispatched (exchange/dispatched.h), all in one buffer.
inline std::int64_t routes(const ExchangeShape& shape, const ChunkLoad& load) {
  constexpr std::int64_t kPeer = 4;   // numbers
  constexpr std::int64_t kGroup = 3;  // numbers
  const std::int64_t choices = load.tokens * shape.top_k;
  return kIndex * (kPeer * shape.num_ranks + kGroup * load.groups + 2 * choices + load.assignments +
                   2 * load.positions_here);
}

// The ranks' index messages from which the tables are made, to all ranks and from them, the assignments that
// they are of, and how many of each rank's were read.
inline std::int64_t messages(const ExchangeShape& shape, const ChunkLoad& load) {
  return kIndex * (load.positions_here + load.positions_elsewhere() + load.assignments + 3 * shape.num_ranks);
}

// While the messages are made.
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

// The results that wait, here and from elsewhere, and as many of the own split ones as are held at a time.
inline std::int64_t result_rows(const ChunkLoad& load, std::int64_t split_at_once) {
  return load.positions_here - load.own_split + load.positions_elsewhere() + split_at_once;
}

// Where the results are, by position, if not all are held at a time.
inline std::int64_t result_index(const ChunkLoad& load) {
  return load.own_runs > 0 ? kIndex * load.positions_here : 0;
}

// The router weight of each position, here and elsewhere, and its gradient.
inline std::int64_t router_weights(const ChunkLoad& load) {
  return 2 * kNumber * (load.positions_here + load.positions_elsewhere());
}

// Rows' gradients that are summed beside those in the caller's memory. In f32, the rank's own are summed
// there.
inline std::int64_t summed_rows(const ExchangeShape& shape, const ChunkLoad& load) {
  return shape.element_bytes == kNumber ? load.rows_received : load.rows_here;
}

// Rows' gradients: in f32 while they are summed, then in the layer's type, with those that come home behind
// them.
inline std::int64_t row_gradients(const ExchangeShape& shape, const ChunkLoad& load) {
  const std::int64_t summed = summed_rows(shape, load);
  return std::max(summed * shape.hidden * kNumber, (summed + load.rows_elsewhere) * shape.row_bytes());
}

// The experts and router weights of so many tokens, which wait for backward.
inline std::int64_t choices(int top_k, std::int64_t tokens) {
  return tokens * top_k * (kIndex + kNumber);
}

}  // namespace chunk_buffers

}  // namespace evenkeel
