#include "evenkeel/budget/chunk_bytes.h"

#include <algorithm>

namespace evenkeel {

namespace {

constexpr std::int64_t kIndex = 4;   // bytes of a row, slot or token number
constexpr std::int64_t kNumber = 4;  // of a router weight or its gradient, f32

// Dispatched, but for its rows.
std::int64_t table_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  constexpr std::int64_t kPeer = 4;   // numbers
  constexpr std::int64_t kGroup = 3;  // numbers
  const std::int64_t choices = load.tokens * shape.top_k;
  return whole_lines(kIndex * (kPeer * shape.num_ranks + kGroup * load.groups + 2 * choices +
                               load.assignments + 2 * load.positions_here));
}

// The ranks' messages from which they are made.
std::int64_t message_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  return whole_lines(kIndex * (load.positions_here + load.assignments + 2 * shape.num_ranks));
}

// While they are made.
std::int64_t routing_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  const std::int64_t outward = whole_lines(kIndex * (load.tokens + 2 * load.assignments + shape.num_ranks));
  return message_bytes(shape, load) + outward;  // inward() needs less
}

std::int64_t received_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  return whole_lines(load.rows_received * shape.row_bytes());
}

std::int64_t sent_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  return whole_lines(load.rows_elsewhere * shape.row_bytes());
}

// From the tables being made to the rows being here, beside the tables.
std::int64_t dispatch_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  return std::max(routing_bytes(shape, load), received_bytes(shape, load) + sent_bytes(shape, load));
}

// The results of a forward pass, and where they are.
std::int64_t result_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  const std::int64_t rows = load.positions_here - load.own_split + load.positions_elsewhere() +
                            results_at_once(shape, load.own_split, load.own_runs);
  return (load.own_runs > 0 ? whole_lines(kIndex * load.positions_here) : 0) +
         whole_lines(rows * shape.row_bytes());
}

// The gradients that arrive, and of each position its router weight and that one's gradient.
std::int64_t arrived_gradient_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  return received_bytes(shape, load) +
         whole_lines(2 * kNumber * (load.positions_here + load.positions_elsewhere()));
}

// Rows' gradients that a backward pass computes, with memory for what comes home.
std::int64_t computed_gradient_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  // In f32, the rank's own are added up where the caller wants them.
  const std::int64_t summed = shape.element_bytes == kNumber ? load.rows_received : load.rows_here;
  return whole_lines(
      std::max(summed * shape.hidden * kNumber, (summed + load.rows_elsewhere) * shape.row_bytes()));
}

// Bytes that a backward pass needs beside what was dispatched. Sending needs fewer than computing.
std::int64_t gradient_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t workspace) {
  return arrived_gradient_bytes(shape, load) + computed_gradient_bytes(shape, load) + whole_lines(workspace);
}

}  // namespace

// A quarter of the spare bytes: rows of a chunk want the rest, and products of a quarter of the rows that are
// fastest are nearly as fast.
ChunkShape with_workspaces(const ChunkShape& least, std::int64_t spare_bytes) {
  const std::int64_t share = std::max<std::int64_t>(spare_bytes, 0) / 4;
  ChunkShape shape = least;
  for (auto pass : {&Workspaces::forward, &Workspaces::backward, &Workspaces::recompute}) {
    const std::int64_t beyond = least.most_workspace.*pass - least.workspace.*pass;
    shape.workspace.*pass += std::clamp<std::int64_t>(share, 0, std::max<std::int64_t>(beyond, 0));
  }
  return shape;
}

std::int64_t saved_bytes(const ChunkShape& shape, std::int64_t positions) {
  return positions > 0 ? whole_lines(positions * shape.saved_bytes + shape.saved_margin_bytes) : 0;
}

// Enough of an expert's rows that its products lose nothing by being cut there.
std::int64_t results_at_once(const ChunkShape& shape, std::int64_t positions, std::int64_t runs) {
  constexpr std::int64_t kRunRows = 384;
  return std::min(positions, std::max<std::int64_t>(kRunRows * runs, shape.top_k));
}

// All positions can be here, or all rows of the rank's own tokens elsewhere: not both, and nothing needs the
// most where it has both. An assignment is here or elsewhere, so that positions of both kinds together are
// never more than those here.
ChunkLoad largest_load(const ChunkShape& shape, std::int64_t tokens, const PlanExperts& experts) {
  ChunkLoad load;
  load.tokens = tokens;
  load.assignments = tokens * shape.top_k;
  load.assignments_kept = load.assignments;
  load.positions_here = shape.num_ranks * load.assignments;
  load.rows_here = shape.num_ranks * tokens;
  load.rows_received = (shape.num_ranks - 1) * tokens;
  load.rows_elsewhere = std::min<std::int64_t>(shape.top_k, shape.num_ranks - 1) * tokens;
  load.groups = std::min({std::int64_t{shape.num_experts}, experts.of_rank, load.positions_here});
  load.own_runs = experts.split ? load.groups : 0;
  return load;
}

std::int64_t held_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions) {
  return table_bytes(shape, load) + received_bytes(shape, load) + saved_bytes(shape, saved_positions);
}

std::int64_t forward_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions) {
  const std::int64_t compute = received_bytes(shape, load) + saved_bytes(shape, saved_positions) +
                               result_bytes(shape, load) + whole_lines(shape.workspace.forward);
  return table_bytes(shape, load) + std::max(dispatch_bytes(shape, load), compute);
}

std::int64_t backward_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions) {
  return held_bytes(shape, load, saved_positions) + gradient_bytes(shape, load, shape.workspace.backward);
}

std::int64_t recompute_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  const std::int64_t compute =
      received_bytes(shape, load) + gradient_bytes(shape, load, shape.workspace.recompute);
  return table_bytes(shape, load) + std::max(dispatch_bytes(shape, load), compute);
}

std::int64_t state_bytes(const ChunkShape& shape, std::int64_t max_tokens) {
  return whole_lines(max_tokens * shape.top_k * (kIndex + kNumber));
}

}  // namespace evenkeel
