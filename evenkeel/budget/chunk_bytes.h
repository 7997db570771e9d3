// The bytes that a chunk takes of a rank's arena, to the byte: the buffers of plan/chunk_buffers.h, added up.
//
// A chunk is dispatched, computed and combined on its own. Its buffers come and go in stack order, so that
// what it needs is the largest sum that stands at one time, each buffer rounded up to whole cache lines.
#pragma once

#include <cstdint>
#include <limits>

#include "evenkeel/base/bytes.h"
#include "evenkeel/plan/chunk_buffers.h"

namespace evenkeel {

// Of the products, in bytes, in each pass: forward, and backward with activations saved or computed again.
struct Workspaces {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t recompute = 0;
};

// The numbers that the bytes depend on, besides the routing.
struct ChunkShape : ExchangeShape {
  int num_experts = 1;
  std::int64_t saved_bytes = 0;           // activations that backward wants, a position
  std::int64_t saved_margin_bytes = 0;    // behind those of a chunk
  std::int64_t weight_bytes = 0;          // an expert's
  std::int64_t row_outputs = 0;           // numbers that its products give for a row
  std::int64_t landing_bytes = 0;         // of a borrowed one's, what is there at a time on its arrival
  std::int64_t forward_weight_bytes = 0;  // the same, as a pass keeps it
  std::int64_t backward_weight_bytes = 0;
  std::int64_t recompute_weight_bytes = 0;  // besides backward's, where nothing was saved
  std::int64_t gradient_bytes = 0;          // f32, of an expert that is another rank's
  Workspaces workspace;                     // the least, unless a step has taken more
  Workspaces most_workspace;                // as much as makes products faster
  bool with_backward = true;
};

// The shape with workspaces for a step that has so many bytes more than the least.
ChunkShape with_workspaces(const ChunkShape& least, std::int64_t spare_bytes);

// The activations of so many positions of a chunk.
std::int64_t saved_bytes(const ChunkShape& shape, std::int64_t positions);

// Of so many of a rank's own positions at experts that the plan splits, in so many runs, how many results are
// held at a time.
std::int64_t results_at_once(const ChunkShape& shape, std::int64_t positions, std::int64_t runs);

// Of a plan, whatever the routing: how many experts a rank computes at most, and whether one may be split
// over ranks or away from its homes.
struct PlanExperts {
  std::int64_t of_rank = std::numeric_limits<std::int64_t>::max();  // no more than there are
  bool split = true;
};

// No load that such a plan can put on a rank takes more bytes, when each rank brings at most `tokens`.
ChunkLoad largest_load(const ChunkShape& shape, std::int64_t tokens, const PlanExperts& experts = {});

// Bytes that stay until backward where the chunk is kept: its tables, its rows and the activations of so many
// positions.
std::int64_t held_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions);
// The peak of a forward pass, whatever is held of the chunk included.
std::int64_t forward_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions);
// The peak of the backward pass of a kept chunk's saved positions, what is held of the chunk included.
std::int64_t backward_bytes(const ChunkShape& shape, const ChunkLoad& load, std::int64_t saved_positions);
// The peak of the backward pass of positions that were not saved, with a second dispatch and the
// pre-activations computed again.
std::int64_t recompute_bytes(const ChunkShape& shape, const ChunkLoad& load);

// Bytes that a step that waits for backward holds whether chunks are kept or not: its tokens' experts and
// router weights.
std::int64_t state_bytes(const ChunkShape& shape, std::int64_t max_tokens);

}  // namespace evenkeel
