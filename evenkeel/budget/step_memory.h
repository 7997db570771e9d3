// How a step is carried out in the memory there is: spilled or not, in which chunks, and what of it is kept.
//
// Problem    Of the ways that fit every rank, take the one predicted to be fastest. Spilling evens out work
//            and memory, and pays with borrowed weights; chunks need less at a time, and pay with smaller
//            products and more messages; what is not kept is computed again in backward.
// Method     For the planner's plan and for plain EP: the whole step kept in one chunk, or else chunks as
//            long as they fit into all the memory, half of it, a quarter, the first of them kept as far as
//            the rest of the memory goes; the predicted times decide (step_cost.h). What is not kept is taken
//            to go backward in about as many chunks as it would be cut into with all the memory, under
//            whichever plan is faster there (chunk_estimate.h). Where the planner's plan fits as one kept
//            chunk, nothing else is looked at.
// Guarantee  Plain EP cut down to a token a rank always fits where each rank has its least memory.
//            Same arguments, same result, on every rank.
// Cost       Of each boundary between blocks that is looked at, O(P^2), and for each plan O(P), and O(P) for
//            each expert that it splits; for each way O(chunks P log B).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/budget/foreign_bytes.h"
#include "evenkeel/budget/memory_options.h"
#include "evenkeel/budget/rank_memory.h"
#include "evenkeel/budget/step_cost.h"
#include "evenkeel/budget/step_cut.h"
#include "evenkeel/budget/step_reason.h"

namespace evenkeel {

class StepMemory {
 public:
  // `units` as for cut_into_chunks().
  StepMemory(const ChunkShape& shape, const MemoryOptions& options, std::int64_t units);
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;

  struct Choice {
    std::span<const Chunk> chunks;  // valid until the next choice; none where nothing fits
    StepReason reason = StepReason::as_planned;

    // Under plain EP, not under the plan that was given.
    bool is_plain() const { return fell_back_to_ep(reason); }
  };
  // `counts` are those that the table adds up to, `plan` is the planner's. Of the forward pass.
  Choice choose_forward(const BlockTable& table, const Counts& counts, std::span<const RankMemory> memories,
                        const LayerPlacement& placement, const StepPlan& plan);
  // Of the backward pass of what was not kept, which the table is of; `plan` is the step's.
  Choice choose_backward(const BlockTable& table, const Counts& counts, std::span<const RankMemory> memories,
                         const LayerPlacement& placement, const StepPlan& plan);
  // As choose_backward(), under this plan alone.
  Choice cut_backward(const BlockTable& table, std::span<const RankMemory> memories,
                      const LayerPlacement& placement, const StepPlan& plan);

  // Plain EP, which a choice may ask for.
  void plan_plain(const Counts& counts, const LayerPlacement& placement, StepPlan& plan) {
    plain_planner_->plan(counts, placement, plan);
  }

  // With the workspaces that were chosen with the chunks; at first, the most.
  const ChunkShape& shape() const { return shape_; }

 private:
  // A way to carry out a step under one plan; without chunks, none fits.
  struct Way {
    std::vector<Chunk> chunks;
    double seconds = 0;  // without the backward pass of what is not kept
    double left = 0;     // the part of the step that is not kept

    double seconds_with(double rest) const { return left > 0 ? seconds + left * rest : seconds; }
  };

  void load_blocks(const BlockTable& table, std::span<const RankMemory> memories,
                   const LayerPlacement& placement, const StepPlan& plan);
  void follow(const StepPlan& plan, const LayerPlacement& placement);
  void follow_plain(const Counts& counts, const LayerPlacement& placement);
  double find_forward(std::span<const RankMemory> memories, bool keep_all, Way& best);
  void find_kept_whole(std::span<const RankMemory> memories, Way& best);
  void find_chunks(std::span<const RankMemory> memories, std::int64_t part, bool keep_all, double rest,
                   Way& best);
  void find_backward(std::span<const RankMemory> memories, Way& best);
  bool fits_whole(std::span<const RankMemory> memories) const;
  bool weights_can_land(std::span<const RankMemory> memories) const;
  void keep_what_fits(std::span<const RankMemory> memories);
  bool can_keep_next(const Chunk& chunk, std::span<const RankMemory> memories);
  bool lengthen_the_rest(std::span<const RankMemory> memories);
  bool set_backward_limits(std::span<const RankMemory> memories);
  double rest_of_all(std::span<const RankMemory> memories);
  // Picks the faster of given_ and plain_; backward takes `rest` seconds were nothing kept.
  StepReason choose_way(double rest) const;
  void time_tried();
  StepSeconds seconds(StepPass pass) const {
    return {pass, shape_, options_.cost, loads_, units_, foreign_.transfers()};
  }
  bool cuts_exactly() const { return options_.rule.kind == ChunkRule::Kind::exact; }
  bool keeps() const {
    return shape_.with_backward &&
           (options_.recompute == Recompute::none || options_.recompute == Recompute::automatic);
  }

  const ChunkShape least_;
  ChunkShape shape_;
  const MemoryOptions options_;
  const std::int64_t units_;
  std::unique_ptr<Planner> plain_planner_;
  StepPlan plain_plan_;  // where experts have several homes
  // Of the plan looked at.
  BlockLoads loads_;
  ForeignBytes foreign_;
  StepCut cut_;
  // Reused, so that no step allocates.
  std::vector<std::int64_t> tokens_, limits_, kept_, kept_with_;  // by rank
  Way given_, plain_, tried_;
};

}  // namespace evenkeel
