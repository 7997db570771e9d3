// Gathers the inputs of a step's decision from all ranks, so that all decide the same, and makes the plans of
// its chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/block_table.h"
#include "evenkeel/budget/buffer_bytes.h"
#include "evenkeel/budget/least_budget.h"
#include "evenkeel/budget/shares.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"
#include "evenkeel/plan/top_k.h"
#include "evenkeel/step/decide.h"

namespace evenkeel::internal {

class StepSchedule {
 public:
  // Steps are cut into chunks only if `cuts` is true; otherwise a step is one chunk. Arguments passed by
  // reference must outlive this object.
  StepSchedule(Communicator& comm, Arena& arena, const LayerPlacement& placement, const BudgetShape& shape,
               const MemoryOptions& options, bool cuts);

  // Collective.
  void decide_forward(const TopK& top_k, Planner& planner, StepDecision& decision);
  // Collective. Whether `fits_here` is true on every rank.
  bool fits_everywhere(bool fits_here);
  // Collective. Decides how backward recomputes `rest`; on entry `decision` is the decision of forward. If
  // this rank already holds `borrowed` bytes for the step's plan, only that plan is tried; returns false if
  // it does not fit.
  bool decide_backward(const TopK& rest, std::optional<std::int64_t> borrowed, StepDecision& decision);

  std::int64_t units() const { return units_; }
  // The part of a rank's tokens that belongs to the chunk.
  TopK part_of(const Chunk& chunk, const TopK& all) const {
    const std::int64_t first = chunk.first_token(all.tokens, units_);
    return all.part(first, chunk.end_token(all.tokens, units_) - first);
  }
  // CPU time of the last decision.
  double planning_seconds() const { return planning_seconds_; }

  // Collective; call for each chunk in order. Returns the plan of the next chunk, in which this rank has the
  // tokens `part`, and sets counts() to the chunk's counts.
  const StepPlan& plan_chunk(const TopK& part, const StepDecision& step);
  const Counts& counts() const { return counts_; }

 private:
  void gather_counts(const TopK& top_k, const char* name);
  void decide(const TopK& top_k, Planner* forward, std::optional<std::int64_t> borrowed,
              StepDecision& decision);
  void follow(const StepPlan& plan);
  void gather_memories(std::int64_t tokens, std::int64_t borrowed);
  int num_blocks() const;
  template <class Work>
  void timed(const Work& work);

  Communicator& comm_;
  Arena& arena_;
  const LayerPlacement& placement_;
  BudgetShape shape_;
  bool cuts_;
  std::int64_t units_;
  BufferBytes bytes_;
  StepDecider decider_;
  CpuStream stream_;
  std::vector<RankMemory> memories_;
  bool covered_ = true;                  // the step's plan covers exactly the tokens being cut
  Counts counts_;                        // of the whole step, later of its current chunk
  std::vector<std::int32_t> one_block_;  // the smallest table of a step: no larger than its counts
  ChunkShares shares_;
  StepPlan chunk_plan_;
  double planning_seconds_ = 0;
};

}  // namespace evenkeel::internal
