// How a step is carried out in the memory there is: spilled or not, in which chunks, and what of it is kept.
//
// Problem    Of the ways that fit every rank, take the one predicted to be fastest. Spilling evens out work
//            and memory, and pays with borrowed weights; chunks need less at a time, and pay with smaller
//            products and more messages; what is not kept is computed again in backward.
// Method     For the planner's plan and for plain EP: chunks as long as they fit into a share of the room,
//            the first of them kept as far as the rest of the room goes, for some shares; the predicted
//            times decide (step_cost.h). Where one kept chunk fits, nothing else is looked at.
// Guarantee  Plain EP cut down to a token a rank always fits where each rank has its least room.
//            Same arguments, same result, on every rank.
// Cost       Of each boundary between blocks that is looked at, O(P^2), and for each plan O(P), and O(P) for
//            each expert that it splits; for each way O(chunks P log B).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/memory/block_loads.h"
#include "evenkeel/memory/chunk_planner.h"
#include "evenkeel/memory/foreign_bytes.h"
#include "evenkeel/memory/kept_whole.h"
#include "evenkeel/memory/memory_options.h"
#include "evenkeel/memory/rank_room.h"
#include "evenkeel/memory/step_cost.h"
#include "evenkeel/memory/step_cut.h"

namespace evenkeel {

class StepMemory {
 public:
  // `units` as for cut_into_chunks().
  StepMemory(const ChunkShape& shape, const MemoryOptions& options, std::int64_t units);
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;

  // `counts` are those that the table adds up to.
  // Chooses for a forward pass: `plan` is the planner's, and becomes plain EP where that is better.
  void choose_forward(const BlockTable& table, const Counts& counts, std::span<const RankRoom> rooms,
                      const LayerPlacement& placement, StepPlan& plan);
  // Chooses chunks for the backward pass of what was not kept, which the table is of; `plan`, the step's,
  // becomes plain EP where that is better.
  void choose_backward(const BlockTable& table, const Counts& counts, std::span<const RankRoom> rooms,
                       const LayerPlacement& placement, StepPlan& plan);
  // The same under one plan. False if it does not fit.
  bool cut_backward(const BlockTable& table, std::span<const RankRoom> rooms, const LayerPlacement& placement,
                    const StepPlan& plan);

  std::span<const Chunk> chunks() const { return chunks_; }
  // With the workspaces that were chosen with them; at first, the most.
  const ChunkShape& shape() const { return shape_; }

 private:
  struct Way {
    std::vector<Chunk> chunks;
    double seconds = 0;
  };
  void choose_workspaces(std::span<const RankRoom> rooms);
  void load_blocks(const BlockTable& table, std::span<const RankRoom> rooms, const LayerPlacement& placement,
                   const StepPlan& plan);
  void follow(const StepPlan& plan, const LayerPlacement& placement);
  void follow_plain(const Counts& counts, const LayerPlacement& placement);
  template <class Consider>
  void consider_plain(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                      const Consider& consider);
  void consider_forward(std::span<const RankRoom> rooms, bool none);
  bool weights_can_land(std::span<const RankRoom> rooms) const;
  double keep_in_one_chunk(std::span<const RankRoom> rooms, double most);
  void keep_what_fits(std::span<const RankRoom> rooms);
  bool can_keep_next(const Chunk& chunk, std::span<const RankRoom> rooms);
  bool lengthen_the_rest(std::span<const RankRoom> rooms);
  void consider_backward(std::span<const RankRoom> rooms);
  StepSeconds seconds() const { return {shape_, options_.cost, loads_, units_, foreign_.transfers()}; }
  bool is_settled() const;
  void forget_best();
  void take_if_faster();
  void take_best();

  const ChunkShape least_;
  ChunkShape shape_;
  const MemoryOptions options_;
  const std::int64_t units_;
  std::unique_ptr<Planner> plain_;
  StepPlan plain_plan_;  // where experts have several homes
  // Of the plan looked at.
  BlockLoads loads_;
  ForeignBytes foreign_;
  KeptWhole whole_;
  StepCut cut_;
  std::vector<std::int64_t> tokens_, limits_, kept_, kept_with_;  // by rank
  Way way_, best_;                                                // the one looked at, and the best so far
  std::vector<Chunk> chunks_;
};

}  // namespace evenkeel
