// Plans each chunk as a separate step: borrowed weights are sent again for each chunk, and moves fit each
// chunk's routing.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/step/decide.h"

namespace evenkeel::internal {

class PlanPerChunk {
 public:
  // `model` and `options` must outlive this object.
  PlanPerChunk(const ByteModel& model, const DecisionOptions& options, int num_ranks);

  // Plans one run of blocks as a chunk. Costs one run of the planner plus O(P^2 + E).
  PlannedChunks plan(const StepInputs& in, int begin, int end, bool kept) {
    return plan(*in.planner, in, begin, end, kept);
  }
  // As plan(), but no work moves.
  PlannedChunks stay(const StepInputs& in, int begin, int end) {
    return plan(plain_planner_, in, begin, end, false);
  }

 private:
  PlannedChunks plan(Planner& planner, const StepInputs& in, int begin, int end, bool kept);

  const ByteModel& model_;
  const DecisionOptions& options_;
  Ep plain_planner_;
  std::vector<std::int32_t> numbers_;  // the run's table, as one block
  std::vector<std::int64_t> tokens_;   // by rank
  Counts counts_;
  StepPlan plan_;
  BlockLoads loads_;
  ForeignLoads foreign_;
};

}  // namespace evenkeel::internal
