// Level: the lowest possible load of the worst rank, with few weight transfers, and few rows moved.
//
// Problem     In this order: the lowest load of the worst rank; few transfers at that load; few assignments
//             computed on another rank than their token's. A rank borrows at most borrow_slots experts. A
//             piece on a rank without a copy has at least min_segment assignments, or all that the expert
//             has; what stays home may have any size.
// Method      The target is the mean load rounded up (or the largest base load). Every rank is above it by
//             some excess or below it by some spare capacity, and these are settled like debts
//             (internal/excess_matcher.h): each transfer closes the balance of one rank, so P ranks take
//             about P - 1 transfers. Where pieces of min_segment cannot meet the target, or ranks lack borrow
//             slots, a binary search finds a target that can be met. Last, each transfer takes the expert
//             that keeps most rows on the rank of their token (internal/local_rows.h).
//             Everything stays home where the ranks' largest home load / mean is below imbalance_threshold.
//             Where links differ, this plan and plain EP are two candidates. More candidates have a worst
//             rank between the lowest and plain EP's, and are settled inside each node first and then across.
//             The candidate with the least predicted time is taken (internal/link_times.h).
// Cost        O(E + P^2 + P N) for N experts a rank, when the target is met, and O(E + P N log P)
//             on many ranks; no allocation after the first call of a shape. docs/log/planners.md has the
//             microseconds.
// Guarantee   Where links are equal and it plans, the worst rank is never above that of least-loaded with the
//             same min_segment, if least-loaded's plan fits the borrow slots. Least-loaded can be lower,
//             because its last piece of an expert may be below min_segment; then its plan is taken. Where
//             level does not plan, the worst rank / mean is below imbalance_threshold. With min_segment <= 1
//             and enough slots, the worst rank is exactly the target. In other cases the worst rank need not
//             be the lowest possible; the number of transfers never need be: docs/algorithms.md#level has how
//             often small instances get the best plan. Where links differ, the step is predicted to be no
//             slower than under the plan made without links, and no slower than under plain EP. The worst
//             rank is never above plain EP's.
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
