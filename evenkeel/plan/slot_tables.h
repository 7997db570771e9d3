// Prepares a step for a dispatcher that does not support borrowed weights. The dispatcher sees P (N + S)
// expert ids, because each rank has N experts at home and S slots. These ids are called places here; the
// router's expert ids are renumbered to them.
//
// Numbering  Rank r has the places from r (N + S) on: first its experts at home, ascending, then its slots.
//            The experts that it borrows for one step take the slots in the order of Loan::borrowed.
// Method     The deal (deal.h) decides which rank computes each assignment.
// Cost       that of the deal, plus O(P S), plus O(log N) for each piece of the deal; reuses its memory.
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
  // `counts` must have source ranks.
  void make(const Counts& counts, const StepPlan& plan, const LayerPlacement& placement, RankId me,
            std::int64_t slots);
  // As above, if slots already hold experts: `held_experts` [P][slots], with ExpertId(-1) for an empty slot.
  // `sent` lists the transfers that were sent for this plan.
  void make(const Counts& counts, const StepPlan& plan, const LayerPlacement& placement, RankId me,
            std::span<const ExpertId> held_experts, std::span<const Transfer> sent);

  // This rank's assignments, ordered by expert and then by their index: the next counts()[i] of them go to
  // places()[i].
  const std::vector<std::int64_t>& places() const { return places_; }
  const std::vector<std::int64_t>& counts() const { return counts_; }
  // The numbers of assignments that each rank sends here, [P]: at_home() to experts at home, in_slots() to
  // experts in slots.
  const std::vector<std::int64_t>& at_home() const { return at_home_; }
  const std::vector<std::int64_t>& in_slots() const { return in_slots_; }
  // True if any rank computes something in a slot; every rank returns the same.
  bool moves() const { return moves_; }
  // The slots of this rank that receive the experts of Loan::borrowed, in the same order.
  const std::vector<std::int64_t>& borrowed_slots() const { return borrowed_slots_; }

 private:
  Deal deal_;
  std::vector<Transfer> transfers_;
  std::vector<ExpertId> held_experts_;
  std::vector<std::int64_t> slot_of_;  // [E][P] the slot that holds the expert, if one does
  std::vector<std::int64_t> places_, counts_, at_home_, in_slots_, borrowed_slots_;
  bool moves_ = false;
};

}  // namespace evenkeel
