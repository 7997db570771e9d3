// The measurement of `evenkeel bench --joint`: whether choosing spill and chunks together is ever slower than
// either alone, in the same budget.
//
//   joint    the planner's plan or plain ep, whichever is predicted to be faster
//   spill    the planner's plan kept wherever it fits, in as many chunks as it then takes
//   chunks   plain ep
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/asked_budget.h"
#include "cli/bench_series.h"

namespace evenkeel::cli {

struct JointSetup {
  BenchSetup bench;
  PlannerOptions planner;
  std::vector<AskedBudget> budgets;  // shares of plain ep's worst peak without a budget, or bytes
  CostModel cost;
};

struct JointRow {
  std::string scenario;
  std::int64_t budget = 0;
  std::int64_t ep_peak = 0;  // the worst rank's, without a budget
  std::int64_t least_budget = 0;
  std::int64_t free_transfers = 0;  // of the planner's plan
  // The reference is joint, the candidates are spill and chunks; nothing where the budget is below the least.
  // One that comes to the very step that joint chose is measured as joint.
  std::optional<Figures> figures;
  bool is_spill = false;
  bool is_chunks = false;

  const CandidateFigures& joint() const { return figures->reference; }
  const CandidateFigures& spill() const { return figures->candidates[0]; }
  const CandidateFigures& chunks() const { return figures->candidates[1]; }
  // The planner's plan did not fit, so that `spill` is plain ep.
  bool gave_up() const { return free_transfers > 0 && spill().transfers == 0; }
  // Medians over rounds of joint's critical path / the other's.
  double to_spill() const { return spill().speedup; }
  double to_chunks() const { return chunks().speedup; }
  // To the faster of both.
  double to_best() const;
};

std::vector<JointRow> measure_joint(const JointSetup& setup, const std::vector<std::string>& scenarios,
                                    const NamedProgress& progress);

}  // namespace evenkeel::cli
