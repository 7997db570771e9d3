#include "evenkeel/budget/chunk_bytes.h"

#include <algorithm>

namespace evenkeel {

namespace {

std::int64_t table_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  return whole_lines(chunk_buffers::routes(shape, load));
}

std::int64_t received_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  return whole_lines(chunk_buffers::received_rows(shape, load));
}

// Peak bytes of dispatch beside the tables: while the tables are made, or while rows are sent and received.
std::int64_t dispatch_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  const std::int64_t routing =
      whole_lines(chunk_buffers::messages(shape, load)) + whole_lines(chunk_buffers::routing(load));
  return std::max(routing,
                  received_bytes(shape, load) + whole_lines(chunk_buffers::rows_to_send(shape, load)));
}

// The results of a forward pass and their index.
std::int64_t result_bytes(const ChunkShape& shape, const ChunkLoad& load) {
  const std::int64_t rows =
      chunk_buffers::result_rows(load, results_at_once(shape, load.own_split, load.own_runs));
  return whole_lines(chunk_buffers::result_index(load)) + whole_lines(rows * shape.row_bytes());
}

// Bytes that a backward pass needs beside what was dispatched. Sending needs fewer than computing.
std::int64_t gradient_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t workspace) {
  return received_bytes(shape, load) + whole_lines(chunk_buffers::router_weights(load)) +
         whole_lines(chunk_buffers::row_gradients(shape, load)) + whole_lines(workspace);
}

}  // namespace

// Takes a quarter of the spare bytes and leaves the rest for a chunk's rows. Products that run on a quarter
// of the best number of rows are nearly as fast.
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

// With 384 rows at a time, an expert's products lose nothing by being cut.
std::int64_t results_at_once(const ChunkShape& shape, std::int64_t positions, std::int64_t runs) {
  constexpr std::int64_t kRunRows = 384;
  return std::min(positions, std::max<std::int64_t>(kRunRows * runs, shape.top_k));
}

// Each number is the largest possible one, although not all can be reached together: either all positions are
// here, or all rows of the rank's own tokens are elsewhere. An assignment is here or elsewhere, so
// positions_here also bounds the positions of both kinds together.
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
  return whole_lines(chunk_buffers::choices(shape.top_k, max_tokens));
}

}  // namespace evenkeel
