// How a step is carried out in the memory there is: spilled or not, in which chunks, and what of it is kept.
//
// Problem    Of the ways that fit every rank, take the one predicted to be fastest. Spilling evens out work
//            and memory, and pays with borrowed weights; chunks need less at a time, and pay with smaller
//            products and more messages; what is not kept is computed again in backward.
// Method     For the planner's plan and for plain EP: chunks as long as they fit into a share of the memory,
//            the first of them kept as far as the rest of the memory goes, for some shares; the predicted
//            times decide (step_cost.h). What is not kept is taken to go backward in about as many chunks as
//            it would be cut into with all the memory, under whichever plan is faster there
//            (chunk_estimate.h). The plan and the share that equal chunks show to be best come first; what
//            these show to be slower than what was found is not cut. Where one kept chunk fits, nothing else
//            is looked at.
// Guarantee  Plain EP cut down to a token a rank always fits where each rank has its least memory.
//            Same arguments, same result, on every rank.
// Cost       Of each boundary between blocks that is looked at, O(P^2), and for each plan O(P), and O(P) for
//            each expert that it splits; for each way O(chunks P log B).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/chunk_estimate.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/budget/foreign_bytes.h"
#include "evenkeel/budget/kept_whole.h"
#include "evenkeel/budget/memory_options.h"
#include "evenkeel/budget/rank_memory.h"
#include "evenkeel/budget/step_cost.h"
#include "evenkeel/budget/step_cut.h"

namespace evenkeel {

class StepMemory {
 public:
  // `units` as for cut_into_chunks().
  StepMemory(const ChunkShape& shape, const MemoryOptions& options, std::int64_t units);
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;

  // `counts` are those that the table adds up to.
  // Chooses for a forward pass: `plan` is the planner's, and becomes plain EP where that is better.
  void choose_forward(const BlockTable& table, const Counts& counts, std::span<const RankMemory> memories,
                      const LayerPlacement& placement, StepPlan& plan);
  // Chooses chunks for the backward pass of what was not kept, which the table is of; `plan`, the step's,
  // becomes plain EP where that is better.
  void choose_backward(const BlockTable& table, const Counts& counts, std::span<const RankMemory> memories,
                       const LayerPlacement& placement, StepPlan& plan);
  // As choose_backward(), under this plan alone. False if it does not fit.
  bool cut_backward(const BlockTable& table, std::span<const RankMemory> memories,
                    const LayerPlacement& placement, const StepPlan& plan);
  // Chooses for either pass without a table, where there is no memory for one: plain EP, nothing kept, in
  // equal chunks that fit wherever tokens go.
  void choose_for_any_routing(StepPass pass, const Counts& counts, std::span<const RankMemory> memories,
                              const LayerPlacement& placement, StepPlan& plan);

  std::span<const Chunk> chunks() const { return chunks_; }
  // With the workspaces that were chosen with them; at first, the most.
  const ChunkShape& shape() const { return shape_; }

 private:
  struct Candidate {
    std::vector<Chunk> chunks;
    double seconds = 0;
    bool is_plain = false;  // in place of the planner's plan
  };
  // Seconds of a step under one plan, as far as they are known before it is cut.
  struct LowerBound {
    double rest = 0;                               // the backward pass, about, were nothing kept
    double least_forward = 0, least_backward = 0;  // however it is cut, and kept

    double least() const { return least_forward + least_of_backward(); }
    double least_of_backward() const { return std::min(least_backward, rest); }
  };
  // Of the memory that chunks may use, the rest being kept, in eighths.
  static constexpr int kShares[] = {8, 6, 4, 2, 1};
  // A share, and about what both passes would take.
  struct PromisingShare {
    int eighths = 0;
    double seconds = 0;
  };
  void choose_workspaces(std::span<const RankMemory> memories);
  void load_blocks(const BlockTable& table, std::span<const RankMemory> memories,
                   const LayerPlacement& placement, const StepPlan& plan);
  void follow(const StepPlan& plan, const LayerPlacement& placement);
  void follow_plain(const Counts& counts, const LayerPlacement& placement);
  void consider_both_plans(const Counts& counts, std::span<const RankMemory> memories,
                           const LayerPlacement& placement, const StepPlan& plan);
  void consider_forward(std::span<const RankMemory> memories, bool all, const LowerBound& bound);
  LowerBound lower_bound(std::span<const RankMemory> memories);
  bool keeps() const;
  bool settles_in_one_chunk(std::span<const RankMemory> memories, bool all);
  void consider_shares(std::span<const RankMemory> memories, bool all);
  void measure_shares(std::span<const RankMemory> memories);
  std::int64_t about_forward() const;
  void forward_limits(std::span<const RankMemory> memories, int share);
  double estimated_best_seconds(std::span<const RankMemory> memories);
  std::span<const PromisingShare> promising_shares(std::span<const RankMemory> memories, bool all);
  double estimate_seconds(std::span<const RankMemory> memories, int share) const;
  std::int64_t bytes_behind(const RankMemory& memory, std::size_t rank) const;
  bool weights_can_land(std::span<const RankMemory> memories) const;
  double keep_in_one_chunk(std::span<const RankMemory> memories, double most);
  void keep_what_fits(std::span<const RankMemory> memories);
  bool can_keep_next(const Chunk& chunk, std::span<const RankMemory> memories);
  bool lengthen_the_rest(std::span<const RankMemory> memories, const TimeLimit& time);
  void consider_backward(std::span<const RankMemory> memories);
  bool backward_limits(std::span<const RankMemory> memories);
  double rest_of_all(std::span<const RankMemory> memories);
  StepSeconds seconds(StepPass pass) const {
    return {pass, shape_, options_.cost, loads_, units_, foreign_.transfers()};
  }
  double both_passes_seconds() const;
  void forget_best();
  void take_if_faster(double seconds);
  void take_best_plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan);
  void take_best();

  const ChunkShape least_;
  ChunkShape shape_;
  const MemoryOptions options_;
  const std::int64_t units_;
  std::unique_ptr<Planner> plain_;
  StepPlan plain_plan_;  // where experts have several homes
  // Of the plan looked at.
  bool is_plain_ = false;  // in place of the planner's
  BlockLoads loads_;
  ForeignBytes foreign_;
  KeptWhole whole_;
  StepCut cut_;
  ChunkEstimate forward_estimate_, backward_estimate_, kept_estimate_;
  std::vector<std::int64_t> held_whole_;  // by rank: of the whole step as one kept chunk
  std::array<PromisingShare, std::size(kShares)> shares_;
  std::int64_t least_to_keep_ = 1;  // chunks, of which one that is kept can go backward
  std::vector<std::int64_t> tokens_, limits_, kept_, kept_with_;  // by rank
  Candidate candidate_, best_;                                    // the one looked at, and the best so far
  LowerBound bound_;                                              // of the plan looked at
  std::vector<Chunk> chunks_;
};

}  // namespace evenkeel
