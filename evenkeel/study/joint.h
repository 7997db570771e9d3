// Whether choosing spill and chunks together is ever slower than either alone, in the same budget.
//
//   joint    the planner's plan or plain ep, whichever is predicted to be faster
//   spill    the planner's plan kept wherever it fits, in as many chunks as it then takes
//   chunks   plain ep
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/study/study_setup.h"

namespace evenkeel {

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
  double to_best() const { return std::max(to_spill(), to_chunks()); }
};

struct JointTable {
  StudySetup setup;
  std::vector<JointRow> rows;

  // The row where joint is slowest against the best of both; null where no budget fits.
  const JointRow* worst() const;
};

// The set-up's first planner, by the costs of its budget; in each budget, shares being of plain ep's worst
// peak without one.
JointTable measure_joint(const StudySetup& setup, const std::vector<std::string>& scenarios,
                         const std::vector<AskedBudget>& budgets, const NamedProgress& progress);

}  // namespace evenkeel
