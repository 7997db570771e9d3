// Borrowed experts that stay in their slots from step to step, while weights do not change.
//
// Problem     Slots that are filled anew each step send about one expert's weights a rank, and routing
//             changes less than that. Keep the worst rank within renew_above times the mean, and send few
//             weights.
// Method      Experts in slots count as copies at home, between which work moves freely. Where the worst rank
//             exceeds renew_above times the mean, three candidates are compared. One sends nothing. One swaps
//             slots one by one: among a few swaps that bring an expert of the worst rank to a lightly loaded
//             rank, it takes the one that most reduces the load above the limit. One is level's plan with all
//             slots filled anew. Candidates within renew_above win, then those that send fewer weights, then
//             the lowest worst rank. An expert that is not used stays until its slot is needed.
// Cost        One plan of level a step; where slots are renewed, at most 8 plans and placements for each
//             swap.
// Guarantee   Depends only on the counts so far, so that every rank has the same slots. The worst rank is
//             within renew_above times the mean, or no higher than it would be if nothing were sent, and no
//             higher than under plain EP.
// Source      Ours; docs/algorithms.md#slots-that-stay.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"

namespace evenkeel {

class HeldSlots {
 public:
  // Every expert must have one home. `options` are for level; borrow_slots is the number of slots of each
  // rank. Throws InvalidArgument for another planner, experts with copies, no or unlimited slots, or a ratio
  // below 1.
  HeldSlots(LayerPlacement homes, const PlannerOptions& options, std::int64_t renew_above_thousandths = 1010);

  // Plans a step over experts at home and in slots, and renews slots where needed.
  void plan(const Counts& counts, StepPlan& plan);
  // Empties all slots.
  void clear();

  // The experts in a rank's slots since plan(), ExpertId(-1) for an empty one.
  std::span<const ExpertId> slots(RankId rank) const { return of_rank(slots_, rank); }
  // The slots of all ranks, [P][slots].
  std::span<const ExpertId> slots() const { return slots_; }
  // The transfers to slots that the last plan() made.
  std::span<const Transfer> sent() const { return sent_; }

 private:
  std::size_t num_slots() const { return static_cast<std::size_t>(options_.borrow_slots); }
  struct Swap {
    std::size_t slot;  // index into slots_
    ExpertId expert;
  };
  std::span<const ExpertId> of_rank(const std::vector<ExpertId>& slots, RankId rank) const {
    return std::span(slots).subspan(rank.offset() * num_slots(), num_slots());
  }
  std::int64_t excess(const Counts& counts, const StepPlan& plan) const;
  LayerPlacement placement_with(const std::vector<ExpertId>& slots) const;
  void renew(const Counts& counts, StepPlan& plan);
  void swap_slots(const Counts& counts, std::vector<ExpertId>& slots, StepPlan& plan);
  std::vector<Swap> swaps(const StepPlan& plan, const std::vector<ExpertId>& slots) const;
  std::vector<ExpertId> slots_for(const StepPlan& plan) const;
  std::vector<Transfer> sent_for(const std::vector<ExpertId>& slots) const;

  LayerPlacement homes_;
  PlannerOptions options_;
  std::int64_t renew_above_;
  LayerPlacement held_;                      // homes, and experts in slots as copies
  std::unique_ptr<Planner> keep_planner_;    // uses slots as they are, sends nothing
  std::unique_ptr<Planner> refill_planner_;  // fills all slots anew
  std::vector<ExpertId> slots_;              // [P][S]
  std::vector<Transfer> sent_;
  StepPlan trial_, best_plan_;
};

}  // namespace evenkeel
