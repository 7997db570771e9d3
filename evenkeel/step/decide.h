// The decision of a step: under which plan it runs, in which chunks, and what of it is kept for backward.
//
// Problem    Of the ways that fit every rank, take the one predicted to be fastest. Spilling evens out work
//            and memory, and pays with borrowed weights; chunks need less at a time, and pay with smaller
//            products and more messages; what is not kept is computed again in backward.
// Method     Candidates are made under the planner's plan and under plain EP (internal/one_plan.h); the
//            predicted times decide (step_seconds.h). What is not kept is taken to go backward in about as
//            many chunks as it would be cut into with all the memory, under whichever plan is faster there
//            (estimated_chunks()). Where the planner's plan fits as one kept chunk, nothing else is looked
//            at. Chunks with plans of their own (internal/plan_per_chunk.h) are candidates where the executor
//            can carry them out.
// Guarantee  Plain EP cut down to a token a rank always fits where each rank has its least memory.
//            Same inputs, same decision, on every rank: no clock, communicator or arena is asked.
// Cost       Of each boundary between blocks that is looked at, O(P^2), and for each plan O(P), and O(P) for
//            each expert that it splits; for each candidate O(chunks P log B).
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

// All decisions of a layer have these in common.
struct DecisionOptions {
  MemoryOptions memory;
  StepExpert expert;
  std::int64_t units = 1;  // as for cut_into_chunks()
  bool with_backward = true;
  // Which executor it is for. One cuts anew what backward computes again, and keeps what chunks it can. The
  // other can plan each chunk as a step of its own; its unit is a block, it keeps a step of one chunk, and
  // its chunks are the same in both passes.
  bool plans_chunks = false;
};

// A rank's memory as it reports it before a step.
struct RankMemory {
  std::int64_t tokens = 0;
  std::int64_t gap = 0;    // bytes that the step can have
  std::int64_t least = 0;  // of these, what must be left to other steps when this one waits for backward
  std::int64_t held = 0;   // the most that it may keep until then
  std::int64_t table = 0;  // for the table of blocks, before anything is given back
};

// One decision follows from these alone. What is viewed must stay until it is made.
struct StepInputs {
  StepPass pass = StepPass::forward;
  const BlockTable& table;  // of the step's tokens; in backward, of those that were not kept
  const Counts& counts;     // which the table adds up to
  const LayerPlacement& homes;
  std::span<const RankMemory> memories;
  int top_k = 1;
  Planner* planner = nullptr;   // in forward
  bool holds_borrowed = false;  // in backward: its weights are there already, and it must be this plan
};

// Blocks [begin, end) of every rank.
struct BlockRun {
  int begin = 0, end = 0;
};

struct StepDecision {
  // Forward: made. Backward: the step's, which becomes plain EP where the reason says so.
  StepPlan plan;
  std::vector<Chunk> chunks;  // none where nothing fits, which can be only under holds_borrowed
  // Runs of blocks between these chunks that are to be counted finer and decided again, since one block does
  // not fit alone. Only of an executor that plans chunks.
  std::vector<BlockRun> refine;
  bool plans_chunks = false;  // each as a step of its own; else they share the plan
  Workspaces workspace;       // of the products
  StepReason reason = StepReason::as_planned;
  double seconds = 0;  // predicted, of this pass and of the backward pass of all
};

// Chunks with plans of their own.
struct PlannedChunks {
  std::int64_t bytes = 0;  // of the largest, on the rank that needs the most
  double seconds = 0;      // forward and, if there is one, backward
  bool moves = false;      // any work
};

class StepDecider {
 public:
  // The model must outlive this.
  StepDecider(ByteModel& model, const DecisionOptions& options, int num_ranks);
  ~StepDecider();

  // Reuses its own memory and the decision's: no allocation after the first call of a shape, but where chunks
  // have plans of their own. Not for two threads at once.
  void decide(const StepInputs& in, StepDecision& decision);

  // Plans so many chunks, as equal as whole blocks make them, each as a step of its own.
  PlannedChunks equal_chunks(const StepInputs& in, int count, bool stays = false);

 private:
  void decide_forward(const StepInputs& in, StepDecision& decision);
  void decide_backward(const StepInputs& in, StepDecision& decision);
  void decide_runs(const StepInputs& in, StepDecision& decision);
  bool take_runs_if_faster(StepReason reason, StepDecision& decision);
  bool take_equal(const StepInputs& in, std::span<const std::int64_t> counts, bool stays,
                  StepDecision& decision);
  void take_longest_if_faster(const StepInputs& in, StepDecision& decision);
  void follow_plain(const StepInputs& in);
  bool take_best(double rest, StepDecision& decision);
  void take_plain_if_faster(const StepInputs& in, double rest, StepDecision& decision);

  const DecisionOptions options_;
  Ep plain_planner_;
  StepPlan plain_plan_;  // where experts have several homes
  std::unique_ptr<internal::OnePlan> ways_;
  std::unique_ptr<internal::PlanPerChunk> chunk_plans_;
  ByteModel& model_;
};

}  // namespace evenkeel
