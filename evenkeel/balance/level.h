// Level: the lowest worst rank load there is, with few weight transfers, and few rows moved.
//
// Problem     In this order: the lowest load of the worst rank; few transfers at that; few assignments
//             computed away from their token. A rank borrows at most borrow_slots experts. A piece on a rank
//             without a copy has at least min_segment assignments, or all that the expert has; what stays
//             home may have any size.
// Method      The target is the mean load rounded up (or the largest base load). Every rank is above it by
//             some excess or below it by some spare capacity, and these are settled like debts
//             (internal/excess_matcher.h): each transfer closes the balance of one rank, so P ranks take
//             about P - 1. Where pieces of min_segment cannot meet the target, a binary search finds one they
//             meet. So it does where ranks lack borrow slots. Last, each transfer takes the expert that keeps
//             most rows on the rank of their token (internal/local_rows.h).
//             Everything stays home where the ranks' largest home load / mean is below imbalance_threshold.
//             With links that differ, that plan is one candidate, plain EP another; more come from worst
//             ranks between the lowest and plain EP's, settled inside each node first and then across. The
//             one with the least predicted time is taken (internal/link_times.h).
// Cost        O(E + P^2 + P N) for N experts a rank, when the target is met, and O(E + P N log P)
//             on many ranks; no allocation after the first call of a shape. docs/log/planners.md has it in
//             microseconds.
// Guarantee   Where links are alike and it plans, the worst rank is never above least-loaded's with the same
//             min_segment: where that is lower, because its last piece of an expert may be below min_segment,
//             its plan is taken if it fits the borrow slots. The worst rank / mean is below
//             imbalance_threshold where it does not plan. With min_segment <= 1 and slots enough the worst
//             rank is the target exactly. Neither fewest transfers nor, in other cases, the lowest worst rank
//             is proven: how often small instances have the best plan is in docs/algorithms.md#level.
//             With links that differ it is predicted to be no slower than without links, nor than plain EP.
//             The worst rank is never above plain EP's.
// Options     min_segment, imbalance_threshold, borrow_slots, links. base_load counts in a rank's load.
// Copies      Shares move between an expert's copies first, which needs no transfer.
// Source      Ours; docs/algorithms.md#level.
#pragma once

#include <memory>

#include "evenkeel/balance/planner.h"

namespace evenkeel {

class Level final : public Planner {
 public:
  explicit Level(const PlannerOptions& options);
  ~Level() override;

  std::string_view name() const override { return "level"; }
  void plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
            std::span<const std::int64_t> base_load = {}) override;

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

}  // namespace evenkeel
