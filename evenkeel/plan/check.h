// Checks a step plan: recomputes loads and transfers from its segments alone, and lists what differs or
// breaks a rule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// A plan written out: what a StepPlan holds, or what came from elsewhere (a file, another planner) and may
// break any rule.
struct PlanRecord {
  PlanRecord() = default;
  PlanRecord(const StepPlan& plan);  // implicit: a plan may be checked as it is

  std::vector<std::vector<Segment>> segments;  // [E]
  std::vector<Transfer> transfers;
  std::vector<std::int64_t> rank_loads;  // [P]
};

// The invariants of plan/step_plan.h that the plan breaks, one sentence each; empty if it is sound. Trusts
// nothing but the segments: totals, foreign ranks and transfers are recomputed. Cost O(E + S P) for S
// segments.
std::vector<std::string> check_plan(const Counts& counts, const LayerPlacement& placement,
                                    const PlanRecord& plan);

}  // namespace evenkeel
