#include "evenkeel/memory/chunk_bytes.h"

#include <algorithm>
#include <bit>

namespace evenkeel {

namespace {

constexpr std::int64_t kIndex = 4;   // bytes of a row, slot or token number
constexpr std::int64_t kNumber = 4;  // of a router weight or its gradient, f32

// Whole cache lines, as an arena lends them.
constexpr std::int64_t lines(std::int64_t bytes) {
  static_assert(std::has_single_bit(static_cast<std::uint64_t>(kArenaLine)));
  return (bytes + kArenaLine - 1) & -kArenaLine;
}

// Dispatched, but for its rows.
std::int64_t table_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  constexpr std::int64_t kPeer = 64;
  constexpr std::int64_t kGroup = 24;
  const std::int64_t choices = load.tokens * shape.top_k;
  return lines(kPeer * shape.num_ranks) + 2 * lines(kIndex * choices) +
         lines(kIndex * load.positions_elsewhere()) + lines(kIndex * load.assignments_kept) +
         lines(kGroup * load.groups) + 2 * lines(kIndex * load.positions_here);
}

// What making the tables needs besides.
std::int64_t routing_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  const std::int64_t messages = lines(kIndex * (load.positions_here + shape.num_ranks)) +
                                lines(kIndex * (load.assignments + shape.num_ranks));
  const std::int64_t cursors = lines(8 * shape.num_ranks);
  const std::int64_t sorting = lines(kIndex * load.tokens) + 2 * lines(kIndex * load.assignments) +
                               lines(kIndex * (shape.num_experts + 1)) + cursors;
  return messages + std::max(sorting, cursors);
}

std::int64_t received_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  return lines(load.rows_received * shape.row_bytes());
}

// From the tables being made to the rows being here, beside the tables.
std::int64_t dispatch_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  return std::max(routing_bytes(shape, load),
                  received_bytes(shape, load) + lines(load.rows_elsewhere * shape.row_bytes()));
}

// The results of a forward pass, and where they are.
std::int64_t result_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  const std::int64_t rows = load.positions_here - load.own_split + load.positions_elsewhere() +
                            results_at_once(shape, load.own_split, load.own_runs);
  return (load.own_runs > 0 ? lines(kIndex * load.positions_here) : 0) + lines(rows * shape.row_bytes());
}

// What a backward pass needs beside what was dispatched.
std::int64_t gradient_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t workspace) {
  const std::int64_t arrived = received_bytes(shape, load) + lines(kNumber * load.positions_here);
  const std::int64_t sending =
      lines(kNumber * load.positions_elsewhere()) + lines(load.rows_elsewhere * shape.row_bytes());
  // In f32, the rank's own are added up where the caller wants them.
  const std::int64_t summed = shape.element_bytes == kNumber ? load.rows_received : load.rows_here;
  const std::int64_t computed =
      lines(std::max(summed * shape.hidden * kNumber, (summed + load.rows_elsewhere) * shape.row_bytes())) +
      lines(kNumber * (load.positions_here + load.positions_elsewhere()));
  return arrived + std::max(sending, computed + lines(workspace));
}

}  // namespace

std::int64_t saved_bytes(const ChunkShape& shape, std::int64_t positions) {
  return positions > 0 ? lines(positions * shape.saved_bytes + shape.saved_margin_bytes) : 0;
}

std::int64_t positions_saved_in(const ChunkShape& shape, std::int64_t bytes) {
  const std::int64_t room = bytes / kArenaLine * kArenaLine - shape.saved_margin_bytes;
  return std::max<std::int64_t>(room, 0) / std::max<std::int64_t>(shape.saved_bytes, 1);
}

// Enough of an expert's rows that its products lose nothing by being cut there.
std::int64_t results_at_once(const ChunkShape& shape, std::int64_t positions, std::int64_t runs) {
  constexpr std::int64_t kRunRows = 768;
  return std::min(positions, std::max<std::int64_t>(kRunRows * runs, shape.top_k));
}

// An assignment is here or elsewhere, so positions here and elsewhere together are the assignments of all; a
// token whose row is here has at most k - 1 rows elsewhere.
ChunkLoad largest_load(const ChunkShape& shape, std::int64_t tokens) {
  ChunkLoad load;
  load.tokens = tokens;
  load.assignments = tokens * shape.top_k;
  load.assignments_kept = load.assignments;
  load.positions_here = shape.num_ranks * load.assignments;
  load.rows_here = shape.num_ranks * tokens;
  load.rows_received = (shape.num_ranks - 1) * tokens;
  load.rows_elsewhere = std::min<std::int64_t>(shape.top_k - 1, shape.num_ranks - 1) * tokens;
  load.groups = std::min<std::int64_t>(shape.num_experts, load.positions_here);
  load.own_runs = load.groups;
  load.slack_bytes = kSpreadBytes;
  return load;
}

std::int64_t held_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions) {
  return table_bytes(shape, load) + received_bytes(shape, load) + saved_bytes(shape, saved_positions) +
         load.slack_bytes;
}

std::int64_t forward_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions) {
  const std::int64_t compute = received_bytes(shape, load) + saved_bytes(shape, saved_positions) +
                               result_bytes(shape, load) + lines(shape.forward_workspace_bytes);
  return table_bytes(shape, load) + load.slack_bytes + std::max(dispatch_bytes(shape, load), compute);
}

std::int64_t backward_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions) {
  return held_bytes(shape, load, saved_positions) +
         gradient_bytes(shape, load, shape.backward_workspace_bytes);
}

std::int64_t recompute_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  const std::int64_t compute =
      received_bytes(shape, load) + gradient_bytes(shape, load, shape.recompute_workspace_bytes);
  return table_bytes(shape, load) + load.slack_bytes + std::max(dispatch_bytes(shape, load), compute);
}

std::int64_t partly_again_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t borrowed) {
  const std::int64_t again = borrowed * shape.recompute_weight_bytes;
  const std::int64_t during =
      again + std::max(shape.recompute_workspace_bytes, borrowed > 0 ? shape.weight_bytes : 0);
  return held_bytes(shape, load, 0) + gradient_bytes(shape, load, during);
}

std::int64_t state_bytes(const ChunkShape& shape, std::int64_t max_tokens) {
  return 2 * lines(max_tokens * shape.top_k * 4);
}

}  // namespace evenkeel
