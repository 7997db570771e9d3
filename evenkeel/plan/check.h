// Checks a step plan: recomputes loads and transfers from the plan's segments alone, and lists every
// difference and broken rule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// A plan's data as plain lists: from a StepPlan, or from elsewhere (a file, another planner), so that it may
// break any rule.
struct PlanRecord {
  PlanRecord() = default;
  PlanRecord(const StepPlan& plan);  // implicit, so that a StepPlan can be passed to check_plan()

  std::vector<std::vector<Segment>> segments;  // [E]
  std::vector<Transfer> transfers;
  std::vector<std::int64_t> rank_loads;  // [P]
};

// The invariants of plan/step_plan.h that the plan breaks, one sentence each; empty if it is sound. Trusts
// only the segments: totals, foreign ranks and transfers are recomputed. Costs O(E + S P) for S segments.
std::vector<std::string> check_plan(const Counts& counts, const LayerPlacement& placement,
                                    const PlanRecord& plan);

}  // namespace evenkeel
