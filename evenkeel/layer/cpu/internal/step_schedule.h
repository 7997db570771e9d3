// The decisions that the ranks agree on before a step's tokens move: its plan, its chunks, and what of them
// is kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/block_table.h"
#include "evenkeel/budget/least_budget.h"
#include "evenkeel/budget/shares.h"
#include "evenkeel/budget/step_memory.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel::internal {

class StepSchedule {
 public:
  // Chunks are cut only where `cuts`; otherwise a step is one chunk. Arguments passed by reference must stay.
  StepSchedule(Communicator& comm, Arena& arena, const LayerPlacement& placement, const BudgetShape& shape,
               const MemoryOptions& options, bool cuts);

  // Collective. Gathers counts, has the step planned and cuts it.
  void plan_forward(const TopK& top_k, Planner& planner, StepPlan& plan);
  // Collective. Whether on every rank what it asks about fits.
  bool fits_everywhere(bool fits_here);
  // Collective. Cuts what backward has to compute again, under the step's plan or, where it is better, under
  // plain EP, which `plan` becomes.
  void plan_backward(const TopK& rest, StepPlan& plan);
  // As plan_backward(), but under the step's plan alone, for which this rank holds `borrowed` bytes already.
  // False if it does not fit.
  bool plan_rest(const TopK& rest, std::int64_t borrowed, const StepPlan& plan);

  std::span<const Chunk> chunks() const { return chunks_; }
  // Of the products, in the pass that was planned last.
  const Workspaces& workspace() const { return memory_.shape().workspace; }
  std::int64_t units() const { return units_; }
  // For the last plan.
  StepReason reason() const { return reason_; }
  // CPU time of the last plan: of the planner, if there was one, and the choice of chunks.
  double planning_seconds() const { return planning_seconds_; }

  // Collective, for the chunks in order: the plan of the next one, of which this rank has the tokens `part`,
  // and, in counts(), its counts.
  const StepPlan& plan_chunk(const TopK& part, const StepPlan& step);
  const Counts& counts() const { return counts_; }

 private:
  void gather_counts(const TopK& top_k, const char* name);
  void take(const StepMemory::Choice& choice, StepPlan& plan);
  void take_chunks(std::span<const Chunk> chunks, const StepPlan& plan);
  void gather_memories(const TopK& top_k, std::int64_t borrowed);
  int num_blocks() const;
  // Has counts() when it calls use(table).
  template <class Use>
  void with_table(const TopK& top_k, const Use& use);
  template <class Work>
  void timed(const Work& work);

  Communicator& comm_;
  Arena& arena_;
  const LayerPlacement& placement_;
  BudgetShape shape_;
  bool cuts_;
  std::int64_t units_;
  StepMemory memory_;
  CpuStream stream_;
  std::vector<RankMemory> memories_;
  std::vector<Chunk> chunks_;
  StepReason reason_ = StepReason::as_planned;
  bool covered_ = true;                  // the step's plan is that of what is cut, no more
  Counts counts_;                        // of the step, then of its present chunk
  std::vector<std::int32_t> one_block_;  // the least table of a step: no larger than its counts
  ChunkShares shares_;
  StepPlan chunk_plan_;
  double planning_seconds_ = 0;
};

}  // namespace evenkeel::internal
