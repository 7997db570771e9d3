// Measures the LLEP paper's scenarios (arXiv 2601.17111), and its ablations as series of points. All planners
// are compared with plain ep.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/study/study_setup.h"

namespace evenkeel {

struct SeriesRow {
  std::string value;  // value of the ablation's parameter
  std::string scenario;
  Figures figures;
  // The worst rank's peak under plain ep divided by its peak under plain ep and "balanced". 0 if "balanced"
  // is not among the scenarios.
  double ep_peak_ratio = 0;
  std::vector<double> peak_ratios;  // the same ratio for each planner
};

struct Series {
  StudySetup setup;       // set-up of the first point
  std::string parameter;  // the ablation's parameter, such as "hidden"; empty for the scenario table
  std::vector<SeriesRow> rows;
};

// The scenarios are "balanced", and 30, 50, 80 and 95 % of assignments to 1, 4 and 16 experts that are
// consecutive or spread. Scenarios in which no experts are left for the rest are left out. Returns the
// scenario named `filter`. If there is none, returns those whose names contain `filter`. Throws
// InvalidArgument ("--scenarios") if no name does.
std::vector<std::string> scenario_names(const StudySetup& setup, const std::string& filter);

Series measure_scenarios(const StudySetup& setup, const std::string& filter, const NamedProgress& progress);

// "tokens, capacity-factor, imbalance-threshold, hidden, experts".
std::string_view ablation_names();
// Measures the ablation of one of the parameters in ablation_names(). Throws InvalidArgument ("--ablation")
// for any other name. Throws BudgetTooSmall, before anything is measured, if the budget is too small for any
// point.
Series measure_ablation(const StudySetup& setup, const std::string& parameter, const NamedProgress& progress);

}  // namespace evenkeel
