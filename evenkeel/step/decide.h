// The decision of a step: under which plan it runs, in which chunks, and what of it is kept for backward.
//
// Problem    Of the candidates that fit every rank, take the one predicted to be fastest. Spilling evens out
//            work and memory, but needs borrowed weights. Chunks need less memory at a time, but have smaller
//            products and more messages. What is not kept is computed again in backward.
// Method     Candidates are made under the planner's plan and under plain EP (internal/one_plan.h), and
//            compared by predicted time (step_seconds.h). For what is not kept, backward is predicted in
//            about as many chunks as all the memory allows (estimated_chunks()), under the plan that is
//            faster there. Where the planner's plan fits as one kept chunk, it is taken without a look at
//            others. Chunks with plans of their own (internal/plan_per_chunk.h) are candidates where the
//            executor supports them.
// Guarantee  Plain EP in chunks of one token a rank always fits if each rank has its least memory. The same
//            inputs give the same decision on every rank: no clock, communicator or arena is read.
// Cost       For each block boundary that is used, O(P^2), plus O(P) for each plan and for each expert that a
//            plan splits. O(chunks P log B) for each candidate.
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
  // Which executor the decision is for. False: an executor that cuts new chunks in backward for what it
  // recomputes, and keeps any chunks that fit. True: an executor that can plan each chunk as a step of its
  // own. Its unit is a block, it keeps a step only as one chunk, and both passes have the same chunks.
  bool plans_chunks = false;
};

// What a rank reports about its memory before a step.
struct RankMemory {
  std::int64_t tokens = 0;
  std::int64_t free_bytes = 0;  // that the step may use
  // Part of `free_bytes` that other steps need while this one waits for backward.
  std::int64_t reserved_bytes = 0;
  std::int64_t keep_limit_bytes = 0;  // the most that it may keep until its backward
  std::int64_t table_bytes = 0;       // for the table of blocks, before anything is freed
};

// The inputs of a decision, which depends on nothing else. Referenced objects must outlive decide().
struct StepInputs {
  StepPass pass = StepPass::forward;
  const BlockTable& table;  // of the step's tokens; in backward, of those that were not kept
  const Counts& counts;     // the sums of the table
  const LayerPlacement& homes;
  std::span<const RankMemory> memories;
  int top_k = 1;
  Planner* planner = nullptr;   // used in forward only
  bool holds_borrowed = false;  // in backward: borrowed weights are there already, so the plan must stay
};

// Blocks [begin, end) of every rank.
struct BlockRun {
  int begin = 0, end = 0;
};

struct StepDecision {
  // In forward an output. In backward the step's plan on entry, and plain EP on return if the reason says so.
  StepPlan plan;
  std::vector<Chunk> chunks;  // empty if nothing fits, which can happen only under holds_borrowed
  // Runs of blocks, outside of these chunks, in which one block alone does not fit. They must be counted in
  // finer blocks and decided again. Only for an executor that plans chunks.
  std::vector<BlockRun> refine;
  bool plans_chunks = false;  // each chunk is a step of its own; else all chunks share the plan
  Workspaces workspace;       // of the products
  StepReason reason = StepReason::as_planned;
  double seconds = 0;  // predicted, for this pass and the whole backward pass
};

// The totals of chunks with plans of their own.
struct PlannedChunks {
  std::int64_t bytes = 0;  // of the largest, on the rank that needs the most
  double seconds = 0;      // forward and, if there is one, backward
  bool moves = false;      // whether any work moves
};

class StepDecider {
 public:
  // The model must outlive this.
  StepDecider(ByteModel& model, const DecisionOptions& options, int num_ranks);
  ~StepDecider();

  // Reuses its own memory and the decision's: no allocation after the first call of a shape, except where
  // chunks have plans of their own. Not for two threads at once.
  void decide(const StepInputs& in, StepDecision& decision);

  // Plans `count` chunks, as equal as whole blocks allow, each as a step of its own; `plain_ep`: nothing
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
  StepPlan plain_plan_;  // used where experts have several homes
  std::unique_ptr<internal::OnePlan> candidates_;
  std::unique_ptr<internal::PlanPerChunk> chunk_plans_;
  ByteModel& model_;
};

}  // namespace evenkeel
