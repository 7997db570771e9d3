// Decides how a step runs: under which plan, in which chunks, and which chunks keep their activations for
// backward.
//
// Problem    Of the candidates that fit into every rank's memory, take the one predicted to be fastest.
//            Spilling evens out work and memory, but needs borrowed weights. Chunks need less memory at a
//            time, but make products smaller and messages more numerous. Chunks that are not kept are
//            computed again in backward.
// Method     Candidates are made under the planner's plan and under plain EP (internal/one_plan.h), and
//            compared by predicted time (step_seconds.h). The backward pass of the part that is not kept is
//            predicted for the number of chunks that it needs if it may use all the memory
//            (estimated_chunks()), under the plan that is faster in backward. If the planner's plan fits as
//            one kept chunk, it is taken without trying other candidates. Chunks that each have a plan
//            (internal/plan_per_chunk.h) are candidates if the executor supports them.
// Guarantee  Plain EP in chunks of one token per rank always fits if each rank has at least its least budget.
//            The same inputs give the same decision on every rank, because no clock, communicator or arena is
//            read.
// Cost       For each block boundary used: O(P^2), plus O(P) for each plan and for each expert that a plan
//            splits. For each candidate: O(chunks P log B).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/block_table.h"
#include "evenkeel/budget/byte_model.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/budget/memory_options.h"
#include "evenkeel/step/step_reason.h"
#include "evenkeel/step/step_seconds.h"

namespace evenkeel {

namespace internal {
class OnePlan;
class PlanPerChunk;
}  // namespace internal

// Options that all decisions of a layer share.
struct DecisionOptions {
  MemoryOptions memory;
  StepExpert expert;
  std::int64_t units = 1;  // as for cut_into_chunks()
  bool with_backward = true;
  // The kind of executor. False: the executor cuts new chunks in backward for the part that it recomputes,
  // and can keep any chunks that fit. True: the executor can plan each chunk as a separate step. Its unit is
  // a block, it keeps a step only if that is one chunk, and both passes have the same chunks.
  bool plans_chunks = false;
};

// A rank's report on its memory before a step.
struct RankMemory {
  std::int64_t tokens = 0;
  std::int64_t free_bytes = 0;  // bytes that the step may use
  // The part of `free_bytes` that other steps need while this step waits for backward.
  std::int64_t reserved_bytes = 0;
  std::int64_t keep_limit_bytes = 0;  // most bytes that the step may keep until its backward
  std::int64_t table_bytes = 0;       // for the table of blocks, before anything else is freed
};

// All inputs of a decision. Referenced objects must outlive decide().
struct StepInputs {
  StepPass pass = StepPass::forward;
  const BlockTable& table;  // counts of the step's tokens; in backward, of the tokens that were not kept
  const Counts& counts;     // the sums of the table
  const LayerPlacement& homes;
  std::span<const RankMemory> memories;
  int top_k = 1;
  Planner* planner = nullptr;   // used in forward only
  bool holds_borrowed = false;  // in backward: borrowed weights are already here, so the plan must stay
};

// Blocks [begin, end) of every rank.
struct BlockRun {
  int begin = 0, end = 0;
};

struct StepDecision {
  // In forward, only an output. In backward, it has the step's plan on entry. On return it is plain EP if the
  // reason says so.
  StepPlan plan;
  std::vector<Chunk> chunks;  // empty if nothing fits; possible only if holds_borrowed
  // Runs of blocks outside of `chunks` in which even a single block does not fit. They must be counted in
  // finer blocks and decided again. Only for an executor with plans_chunks.
  std::vector<BlockRun> refine;
  // true: each chunk is planned as a separate step; false: all chunks share `plan`
  bool plans_chunks = false;
  Workspaces workspace;  // for the products
  StepReason reason = StepReason::as_planned;
  double seconds = 0;  // predicted for this pass and the whole backward pass
};

// Totals over chunks that each have a plan.
struct PlannedChunks {
  std::int64_t bytes = 0;  // of the largest chunk, on the rank that needs the most
  double seconds = 0;      // forward and, if there is one, backward
  bool moves = false;      // true if any work moves
};

class StepDecider {
 public:
  // `model` must outlive this object.
  StepDecider(ByteModel& model, const DecisionOptions& options, int num_ranks);
  ~StepDecider();

  // Reuses the memory of this object and of the decision: after the first call with a shape it allocates
  // nothing, unless each chunk has a plan. Not for two threads at once.
  void decide(const StepInputs& in, StepDecision& decision);

  // Plans `count` chunks, as equal as whole blocks allow, each as a separate step. With `plain_ep`, no work
  // moves.
  PlannedChunks equal_chunks(const StepInputs& in, int count, bool plain_ep = false);

 private:
  void decide_forward(const StepInputs& in, StepDecision& decision);
  void decide_backward(const StepInputs& in, StepDecision& decision);
  void decide_runs(const StepInputs& in, StepDecision& decision);
  bool take_runs_if_faster(StepReason reason, StepDecision& decision);
  bool take_equal(const StepInputs& in, std::span<const std::int64_t> counts, bool plain_ep,
                  StepDecision& decision);
  void take_longest_if_faster(const StepInputs& in, StepDecision& decision);
  void follow_plain(const StepInputs& in);
  bool take_best(double backward_seconds, StepDecision& decision);
  void take_plain_if_faster(const StepInputs& in, double backward_seconds, StepDecision& decision);

  const DecisionOptions options_;
  Ep plain_planner_;
  StepPlan plain_plan_;  // only if experts have several homes
  std::unique_ptr<internal::OnePlan> candidates_;
  std::unique_ptr<internal::PlanPerChunk> chunk_plans_;
  ByteModel& model_;
};

}  // namespace evenkeel
