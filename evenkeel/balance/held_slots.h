// Borrowed experts that stay in their slots from step to step, while weights do not change.
//
// Problem     Slots that are filled anew each step send about a weight a rank, and routing changes less than
//             that. Keep the worst rank within renew_above of the mean, and send few weights.
// Method      Experts in slots count as copies at home, between which work moves freely. Where the worst rank
//             is above renew_above of the mean, slots are swapped one by one: of a few swaps that bring an
//             expert of the worst rank to a little loaded one, that which takes most off ranks above it. The
//             other candidate is a plan of level with all slots filled anew. Of both and of nothing sent,
//             those within renew_above are taken first, then those that send fewer weights, then the most
//             level. An expert that is not wanted stays until its slot is.
// Cost        One plan of level a step; where slots are renewed 8 plans and placements at most for each swap.
// Guarantee   Depends on the counts so far alone: every rank has the same. The worst rank is within
//             renew_above of the mean, or no higher than with nothing sent and than plain EP's.
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
  // Every expert has one home. `options` are level's, of which borrow_slots is how many slots each rank has.
  // Throws InvalidArgument for another planner, experts with copies, no or unlimited slots, or a ratio
  // below 1.
  HeldSlots(LayerPlacement homes, const PlannerOptions& options, std::int64_t renew_above_thousandths = 1010);

  // Plans a step over experts at home and in slots, and fills slots anew where it must.
  void plan(const Counts& counts, StepPlan& plan);
  // Empties all slots.
  void clear();

  // The experts in a rank's slots since plan(), ExpertId(-1) for an empty one.
  std::span<const ExpertId> slots(RankId rank) const { return of_rank(slots_, rank); }
  // The same of all ranks, [P][slots].
  std::span<const ExpertId> slots() const { return slots_; }
  // The weights that plan() has sent to slots.
  std::span<const Transfer> sent() const { return sent_; }

 private:
  std::size_t num_slots() const { return static_cast<std::size_t>(options_.borrow_slots); }
  struct Swap {
    std::size_t slot;  // of all
    ExpertId expert;
  };
  std::span<const ExpertId> of_rank(const std::vector<ExpertId>& slots, RankId rank) const {
    return std::span(slots).subspan(rank.offset() * num_slots(), num_slots());
  }
  std::int64_t excess(const Counts& counts, const StepPlan& plan) const;
  LayerPlacement with(const std::vector<ExpertId>& slots) const;
  void renew(const Counts& counts, StepPlan& plan);
  void swap_slots(const Counts& counts, std::vector<ExpertId>& slots, StepPlan& plan);
  std::vector<Swap> swaps(const StepPlan& plan, const std::vector<ExpertId>& slots) const;
  std::vector<ExpertId> slots_for(const StepPlan& plan) const;
  std::vector<Transfer> sent_for(const std::vector<ExpertId>& slots) const;

  LayerPlacement homes_;
  PlannerOptions options_;
  std::int64_t renew_above_;
  LayerPlacement held_;            // homes, and what lies in slots
  std::unique_ptr<Planner> free_;  // sends nothing
  std::unique_ptr<Planner> anew_;  // fills all
  std::vector<ExpertId> slots_;    // [P][S]
  std::vector<Transfer> sent_;
  StepPlan tried_, best_plan_;
};

}  // namespace evenkeel
