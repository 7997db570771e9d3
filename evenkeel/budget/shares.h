// A step plan carried out chunk by chunk: each chunk's assignments are shared out in the step's proportions.
//
// Rule     Of an expert's first n assignments, in the order of chunks, segment i gets floor(n q_i / Q)
//          of what the segments before it left, q_i its size and Q its size and that of all behind it. The
//          share of every segment grows with n, and at n = load it is the segment.
// So       the chunks' segments add up to the step's, and a part of a chunk never puts more on a rank than
//          the chunk does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// Each segment's share of an expert's first `n` assignments, in order. `shares` is as long as `segments`.
void share_out(std::span<const Segment> segments, std::int64_t n, std::span<std::int64_t> shares);

// Cuts the plan of a step into plans of its chunks, taken in order.
class ChunkShares {
 public:
  // `plan` is that of the whole step; it must stay as it is.
  void begin(const StepPlan& plan);
  // The plan of the next chunk, whose counts these are.
  void next(const Counts& counts, const LayerPlacement& placement, StepPlan& chunk);

 private:
  const StepPlan* plan_ = nullptr;
  std::vector<std::int64_t> done_;  // by expert: assignments of the chunks so far
  std::vector<std::int64_t> before_, after_;
};

}  // namespace evenkeel
