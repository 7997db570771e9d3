// Splits a step plan into plans of its chunks: each chunk's assignments are divided in the step's
// proportions.
//
// Rule     An expert's first n assignments, in the order of chunks, are divided over its segments in turn.
//          Segment i gets floor(n_i q_i / Q_i). Here n_i assignments are left by the segments before it, q_i
//          is its size, and Q_i is its size plus that of all segments after it. Every share grows with n, and
//          at n = load it equals the segment.
// Result   The chunks' segments add up to the step's, and a part of a chunk never puts more on a rank than
//          the chunk does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// Fills `shares`, as long as `segments`, with each segment's share of an expert's first `n` assignments.
void share_out(std::span<const Segment> segments, std::int64_t n, std::span<std::int64_t> shares);

// Cuts the plan of a step into plans of its chunks, taken in order.
class ChunkShares {
 public:
  // `plan` is the whole step's plan. It must not change while chunks are taken.
  void begin(const StepPlan& plan);
  // Fills `chunk` with the plan of the next chunk, which has these counts.
  void next(const Counts& counts, const LayerPlacement& placement, StepPlan& chunk);

 private:
  const StepPlan* plan_ = nullptr;
  std::vector<std::int64_t> done_;  // by expert: assignments of the chunks so far
  std::vector<std::int64_t> before_, after_;
};

}  // namespace evenkeel
