// Computes, exact to the byte, the most bytes that a rank's arena holds while the C++ layer runs a step: the
// buffers of budget/chunk_bytes.h and all other memory held at the same time.
//
// Assumes   The layer is the only user of its arena and runs one step at a time.
// Checked   tests/layer/prediction_test.cpp compares the results with real arenas.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/budget/least_budget.h"
#include "evenkeel/plan/step_plan.h"
#include "evenkeel/step/decide.h"

namespace evenkeel {

struct LayerMemory {
  BudgetShape shape;                        // in which workspaces have their smallest sizes
  std::optional<std::int64_t> budget = {};  // bytes of the arena
  MemoryOptions options = {};

  bool with_backward() const { return shape.chunk.with_backward; }
  // True if steps may be cut into chunks. Then units() is the number of units into which a rank's tokens are
  // cut.
  bool cuts() const;
  std::int64_t units() const;
  // Free bytes between steps, and in backward after everything kept is freed.
  std::int64_t free_bytes() const;
  // The memory that a rank reports before it decides in forward, while it holds `borrowed` bytes.
  RankMemory report(std::int64_t tokens, std::int64_t borrowed = 0) const;
  // The number of blocks in which the tokens are counted, if every rank has `table_bytes` for its table of
  // counts.
  int num_blocks(std::int64_t table_bytes) const;
};

using RankLoads = std::vector<ChunkLoad>;  // [P]

// A step as it was carried out.
struct CarriedStep {
  const LayerPlacement& homes;
  const StepPlan& plan;
  const StepPlan& recompute_plan;  // plan of what backward recomputes: `plan` or plain EP
  Workspaces workspace;
  std::span<const Chunk> chunks;
  std::span<const RankLoads> loads;            // one for each chunk
  std::span<const RankLoads> recompute_loads;  // one for each recomputed chunk
  // number of blocks in which the step was counted, if it may be cut
  int blocks = 1;
  std::span<const int> recompute_blocks;  // the same for each decision on the recomputed part
};

struct Peaks {
  std::int64_t forward = 0;
  std::int64_t backward = 0;

  std::int64_t both() const { return forward > backward ? forward : backward; }
};
// A rank's bytes at each point of a step, in time order.
struct StepBytes {
  int rank = 0;
  std::vector<std::int64_t> points = {};
  std::size_t backward = 0;  // index of the first point of backward
};
// The peaks of each rank. `fullest`, if not null, gets the points of the rank with the highest peak. O(chunks
// P + E + transfers).
std::vector<Peaks> peaks_of(const LayerMemory& memory, const CarriedStep& step, StepBytes* fullest = nullptr);

}  // namespace evenkeel
