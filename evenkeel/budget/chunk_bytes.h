// The exact bytes that a chunk takes from a rank's arena: the buffers of plan/chunk_buffers.h, added up.
//
// A chunk is dispatched, computed and combined on its own. Its buffers are allocated and freed in stack
// order, so its peak is the largest sum of buffers live at one time, each rounded up to whole cache lines.
#pragma once

#include <cstdint>
#include <limits>

#include "evenkeel/base/bytes.h"
#include "evenkeel/plan/chunk_buffers.h"

namespace evenkeel {

// Workspace bytes of the products in each pass: forward, backward with saved activations, backward that
// recomputes.
struct Workspaces {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t recompute = 0;
};

// The numbers that the bytes depend on, besides the routing.
struct ChunkShape : ExchangeShape {
  int num_experts = 1;
  std::int64_t saved_bytes = 0;           // activations that backward needs, for each position
  std::int64_t saved_margin_bytes = 0;    // once for each chunk, behind its activations
  std::int64_t weight_bytes = 0;          // of one expert
  std::int64_t row_outputs = 0;           // numbers that an expert's products give for a row
  std::int64_t arrival_bytes = 0;         // buffer in which a borrowed expert's weights arrive
  std::int64_t forward_weight_bytes = 0;  // a borrowed expert's weights, as a pass keeps them
  std::int64_t backward_weight_bytes = 0;
  std::int64_t recompute_weight_bytes = 0;  // in addition to backward's, if nothing was saved
  std::int64_t gradient_bytes = 0;          // of another rank's expert, in f32
  Workspaces workspace;                     // the least, or what with_workspaces() gave
  Workspaces most_workspace;                // more makes no product faster
  bool with_backward = true;
};

// The shape with larger workspaces, for a step that has `spare_bytes` more than its least bytes.
ChunkShape with_workspaces(const ChunkShape& least, std::int64_t spare_bytes);

// Bytes of the saved activations of `positions` positions of a chunk.
std::int64_t saved_bytes(const ChunkShape& shape, std::int64_t positions);

// How many results are held at a time, out of a rank's own `positions` at experts that the plan splits.
// `runs` is the number of these experts.
std::int64_t results_at_once(const ChunkShape& shape, std::int64_t positions, std::int64_t runs);

// What is known of a plan whatever the routing: the most experts that a rank computes, and whether any expert
// may be split over ranks or computed away from its homes.
struct PlanExperts {
  std::int64_t of_rank = std::numeric_limits<std::int64_t>::max();  // capped at the number of experts
  bool split = true;
};

// An upper bound: no load that such a plan can put on a rank takes more bytes, if each rank brings at most
// `tokens`.
ChunkLoad largest_load(const ChunkShape& shape, std::int64_t tokens, const PlanExperts& experts = {});

// Bytes that a kept chunk holds until backward: its tables, its rows and the activations of
// `saved_positions`.
std::int64_t held_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions);
// Peak bytes of a forward pass, including what is kept of the chunk.
std::int64_t forward_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions);
// Peak bytes of the backward pass of a kept chunk's saved positions, including what is kept of the chunk.
std::int64_t backward_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions);
// Peak bytes of the backward pass of positions that were not saved. It dispatches them again and recomputes
// their pre-activations.
std::int64_t recompute_bytes(const ChunkShape& shape, const ChunkLoad& load);

// Bytes that a step holds until backward whether or not chunks are kept: its tokens' experts and router
// weights.
std::int64_t state_bytes(const ChunkShape& shape, std::int64_t max_tokens);

}  // namespace evenkeel
