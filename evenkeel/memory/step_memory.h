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
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/memory/block_loads.h"
#include "evenkeel/memory/chunk_planner.h"
#include "evenkeel/memory/step_cost.h"

namespace evenkeel {

// What of a step's forward pass is computed again in backward. `none`: nothing, unless a budget has no room
// in one piece between what other steps keep; `whole`: all of it, at once, as frameworks do; `chunk`: all,
// chunk by chunk; `automatic`: what there is no room for.
enum class Recompute { none, whole, chunk, automatic };

// What a rank says of its memory before a step.
struct RankRoom {
  std::int64_t tokens = 0;
  std::int64_t gap = 0;    // bytes that the step can have
  std::int64_t least = 0;  // of these, what must be left to other steps when this one waits for backward
  std::int64_t held = 0;   // the most that it may keep until then
  std::int64_t table = 0;  // for the table of blocks, before anything is given back
};

// How many chunks. `exact`: the fewest that fit; `equal`: `count` of equal parts of every rank's tokens;
// `mact`: equal parts too, as many as MemFine's tuning takes of `bins` (mact.h). Where an equal part would
// not fit, the step is cut as under `exact`: a rule is a wish, the budget is a promise.
struct ChunkRule {
  enum class Kind { exact, equal, mact };
  Kind kind = Kind::exact;
  std::int64_t count = 1;
  std::vector<std::int64_t> bins = {1, 2, 4, 8};

  friend bool operator==(const ChunkRule&, const ChunkRule&) = default;
};

struct MemoryOptions {
  Recompute recompute = Recompute::automatic;
  ChunkRule rule;
  CostModel cost;
  // 2: while one chunk is computed, the next one is dispatched and the one before comes home, each of the two
  // alive at a time in half of the room. What is kept under a budget goes one at a time. Not with `whole`.
  int chunks_in_flight = 1;
  // Plain EP only where the planner's plan does not fit, however much faster it is predicted to be: for
  // comparison, and for those who know better than the prediction.
  bool keep_plan = false;

  friend bool operator==(const MemoryOptions&, const MemoryOptions&) = default;
};

class StepMemory {
 public:
  // `units` as for cut_into_chunks().
  StepMemory(const ChunkShape& shape, const MemoryOptions& options, std::int64_t units);

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

 private:
  struct Way {
    std::vector<Chunk> chunks;
    double seconds = 0;
  };
  void borrow(const StepPlan& plan, const LayerPlacement& placement);
  void add_copies(const StepPlan& plan, const LayerPlacement& placement);
  void load_blocks(const BlockTable& table, std::span<const RankRoom> rooms, const LayerPlacement& placement,
                   const StepPlan& plan);
  void follow(const StepPlan& plan, const LayerPlacement& placement);
  void follow_plain(const Counts& counts, const LayerPlacement& placement);
  void add_up_foreign();
  void consider_forward(std::span<const RankRoom> rooms, bool none);
  double keep_in_one_chunk(std::span<const RankRoom> rooms, double most);
  bool fits_kept(std::size_t rank, const RankRoom& room) const;
  std::optional<double> recomputed_in_parts(std::size_t rank, const RankRoom& room) const;
  bool has_room_for_the_rest(std::span<const RankRoom> rooms) const;
  std::int64_t room_to_keep(std::size_t rank, const RankRoom& room) const;
  void keep_what_fits(std::span<const RankRoom> rooms);
  template <class Consider>
  void consider_plain(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                      const Consider& consider);
  bool lengthen_the_rest(std::span<const RankRoom> rooms);
  void consider_backward(std::span<const RankRoom> rooms);
  // Of a chunk that has all the room, of one of two in flight, and of what these share.
  struct PassBytes {
    LoadBytes alone;
    LoadBytes overlapped;
    std::int64_t ChunkShape::*shared;
  };
  static const PassBytes kForwardBytes, kBackwardBytes, kWholeBytes;
  StepSeconds seconds() const { return {shape_, options_.cost, loads_, units_, transfers_}; }
  bool cut_while_faster(LoadBytes bytes, std::span<const std::int64_t> limits, int begin);
  std::int64_t half_of(std::int64_t limit, const PassBytes& bytes) const;
  bool cut(const PassBytes& bytes);
  bool cut_exactly(const PassBytes& bytes, int begin);
  bool cut_by_rule(const PassBytes& bytes);
  std::int64_t count_by_rule(const PassBytes& bytes) const;
  ChunkLoad covering_load(RankId rank, const Chunk& chunk) const;
  bool is_settled() const;
  void forget_best();
  void take_if_faster();
  void take_best();

  ChunkShape shape_;
  MemoryOptions options_;
  std::int64_t units_;
  std::unique_ptr<Planner> plain_;
  StepPlan plain_plan_;  // where experts have several homes
  BlockLoads loads_;
  std::vector<std::int64_t> tokens_, limits_, halves_, kept_, kept_with_;
  // By rank: borrowed weights and gradients in forward, in backward where all is kept, and where not.
  std::vector<std::int64_t> forward_fixed_, kept_fixed_, again_fixed_;
  // By rank, of the plan looked at.
  std::vector<ForeignLoad> foreign_;
  std::vector<ChunkLoad> whole_;  // the whole step's
  std::int64_t transfers_ = 0;    // the most that a rank borrows
  Way way_, best_;                // the one looked at, and the best so far
  std::vector<Chunk> chunks_;
};

}  // namespace evenkeel
