// The most bytes that a rank's arena holds while the C++ layer carries out a step, to the byte: the buffers
// of budget/chunk_bytes.h, and what is held around them.
//
// Assumes  a layer that has its arena to itself, and one step at a time.
// Checked  against arenas: tests/layer/prediction_test.cpp.
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
  BudgetShape shape;                        // with the least workspaces
  std::optional<std::int64_t> budget = {};  // bytes of the arena
  MemoryOptions options = {};

  bool with_backward() const { return shape.chunk.with_backward; }
  // Whether steps may be cut at all, and into how many units a rank's tokens are cut then.
  bool cuts() const;
  std::int64_t units() const;
  // Between steps, and in backward when all that was kept is gone.
  std::int64_t free_bytes() const;
  // What a rank reports before it decides, forward; `borrowed` bytes are held already.
  RankMemory report(std::int64_t tokens, std::int64_t borrowed = 0) const;
  // Blocks into which the tokens are counted, where all ranks have so many bytes for their table.
  int num_blocks(std::int64_t table_bytes) const;
};

using RankLoads = std::vector<ChunkLoad>;  // [P]

// A step as it is carried out.
struct CarriedStep {
  const LayerPlacement& homes;
  const StepPlan& plan;
  const StepPlan& rest_plan;  // of what backward computes again; the same, or plain EP
  Workspaces workspace;
  std::span<const Chunk> chunks;
  std::span<const RankLoads> loads;       // by chunk
  std::span<const RankLoads> rest_loads;  // by chunk of what backward computes again
  int blocks = 1;                         // that the step was counted in, where it may be cut
  std::span<const int> rest_blocks;       // the same of the rest, each time that it was decided
};

struct Peaks {
  std::int64_t forward = 0;
  std::int64_t backward = 0;

  std::int64_t both() const { return forward > backward ? forward : backward; }
};
// A rank's bytes at each point of a step, in order.
struct StepBytes {
  int rank = 0;
  std::vector<std::int64_t> points = {};
  std::size_t backward = 0;  // of the points, the first of backward
};
// By rank; `fullest`, if any, gets the points of the rank with the highest peak. O(chunks P + E + transfers).
std::vector<Peaks> peaks_of(const LayerMemory& memory, const CarriedStep& step, StepBytes* fullest = nullptr);

}  // namespace evenkeel
