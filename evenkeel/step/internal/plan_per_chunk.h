// Chunks that are planned one by one, each as a step of its own: weights travel again for each, and what
// moves suits each chunk's routing.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/step/decide.h"

namespace evenkeel::internal {

class PlanPerChunk {
 public:
  // All must outlive this.
  PlanPerChunk(const ByteModel& model, const DecisionOptions& options, int num_ranks);

  // One run of blocks.
  struct Run {
    std::int64_t bytes = 0;  // on the rank that needs the most
    double seconds = 0;      // forward and, if there is one, backward
    bool moves = false;      // any work
  };
  // O(the planner + P^2 + E).
  Run plan(const StepInputs& in, int begin, int end, bool kept);
  // The same with nothing moved.
  Run stay(const StepInputs& in, int begin, int end);

 private:
  void take_run(const StepInputs& in, int begin, int end);
  Run judge(const StepInputs& in, const StepPlan& plan, bool kept);

  const ByteModel& model_;
  const DecisionOptions& options_;
  std::unique_ptr<Planner> plain_planner_;
  std::vector<std::int32_t> numbers_;  // of the run as one block
  std::vector<std::int64_t> tokens_;   // by rank
  Counts counts_;
  StepPlan plan_;
  BlockLoads loads_;
  ForeignLoads foreign_;
};

}  // namespace evenkeel::internal
