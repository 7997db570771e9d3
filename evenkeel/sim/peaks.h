// The most bytes that a rank's arena holds while the C++ layer runs a step, exact to the byte: the buffers of
// budget/chunk_bytes.h, and what is held around them.
//
// Assumes   A layer that has its arena to itself, and one step at a time.
// Checked   Against arenas: tests/layer/prediction_test.cpp.
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
  BudgetShape shape;                        // with the smallest workspaces
  std::optional<std::int64_t> budget = {};  // bytes of the arena
  MemoryOptions options = {};

  bool with_backward() const { return shape.chunk.with_backward; }
  // True if steps may be cut. Then units() is the number of units into which a rank's tokens are cut.
  bool cuts() const;
  std::int64_t units() const;
  // Free bytes between steps, and in backward after everything kept is freed.
  std::int64_t free_bytes() const;
  // What a rank reports before it decides in forward, while `borrowed` bytes are held.
  RankMemory report(std::int64_t tokens, std::int64_t borrowed = 0) const;
  // Number of blocks in which the tokens are counted if every rank has `table_bytes` for its table.
  int num_blocks(std::int64_t table_bytes) const;
};

using RankLoads = std::vector<ChunkLoad>;  // [P]

// A step as it is carried out.
struct CarriedStep {
  const LayerPlacement& homes;
  const StepPlan& plan;
  const StepPlan& recompute_plan;  // for what backward recomputes; `plan` or plain EP
  Workspaces workspace;
  std::span<const Chunk> chunks;
  std::span<const RankLoads> loads;            // by chunk
  std::span<const RankLoads> recompute_loads;  // by recomputed chunk
  int blocks = 1;                              // blocks in which the step was counted, if it may be cut
  std::span<const int> recompute_blocks;       // the same for the recomputed part, per decision
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
// Peaks by rank. `fullest`, if not null, gets the points of the rank with the highest peak. O(chunks P + E +
// transfers).
std::vector<Peaks> peaks_of(const LayerMemory& memory, const CarriedStep& step, StepBytes* fullest = nullptr);

}  // namespace evenkeel
