// Prepares a step for a dispatcher that knows nothing of borrowed weights. It carries rows to P (N + S)
// experts, N at home on each rank and S slots; the ids that it gets are renumbered to these places.
//
// Numbering  Rank r has the places from r (N + S) on: its experts at home, ascending, then its slots. Experts
//            that it borrows for one step are in the slots in the order of Loan::borrowed.
// Method     The deal (deal.h) says which of a rank's assignments go where.
// Cost       The deal's, O(P S), and O(log N) for each piece of it; reuses its memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/loan.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

class SlotTables : public Loan {
 public:
  // All ranks must have equally many experts at home, and the plan may borrow at most `slots` on each.
  // `counts` must have sources.
  void make(const Counts& counts, const StepPlan& plan, const LayerPlacement& placement, RankId me,
            std::int64_t slots);
  // As above, where slots hold experts already: `held_experts` [P][slots], ExpertId(-1) for an empty slot.
  // `sent` are the transfers that were sent for this plan.
  void make(const Counts& counts, const StepPlan& plan, const LayerPlacement& placement, RankId me,
            std::span<const ExpertId> held_experts, std::span<const Transfer> sent);

  // This rank's assignments, ordered by expert and then as they come: the next counts()[i] of them go to
  // places()[i].
  const std::vector<std::int64_t>& places() const { return places_; }
  const std::vector<std::int64_t>& counts() const { return counts_; }
  // Assignments that each rank sends here, [P]: to experts at home, and to experts in slots.
  const std::vector<std::int64_t>& at_home() const { return at_home_; }
  const std::vector<std::int64_t>& in_slots() const { return in_slots_; }
  // Whether any rank computes something in a slot: the same on every rank.
  bool moves() const { return moves_; }
  // The slots of this rank that the experts of Loan::borrowed go to, in their order.
  const std::vector<std::int64_t>& borrowed_slots() const { return borrowed_slots_; }

 private:
  Deal deal_;
  std::vector<Transfer> transfers_;
  std::vector<ExpertId> held_experts_;
  std::vector<std::int64_t> slot_of_;  // [E][P], the slot of an expert that is in one
  std::vector<std::int64_t> places_, counts_, at_home_, in_slots_, borrowed_slots_;
  bool moves_ = false;
};

}  // namespace evenkeel
