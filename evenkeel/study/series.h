// The LLEP paper's scenarios (arXiv 2601.17111), and its ablations as series of points. All planners are
// compared with plain ep.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/study/study_setup.h"

namespace evenkeel {

struct SeriesRow {
  std::string value;  // of the ablation's parameter
  std::string scenario;
  Figures figures;
  // The worst rank's peak / the same planner's peak under "balanced"; 0 if "balanced" is not among the
  // scenarios.
  double ep_peak_ratio = 0;
  std::vector<double> peak_ratios;  // by planner
};

struct Series {
  StudySetup setup;       // of the first point
  std::string parameter;  // parameter of an ablation, such as "hidden"; empty for the scenario table
  std::vector<SeriesRow> rows;
};

// Scenarios: 30, 50, 80 and 95 % of assignments into 1, 4 and 16 experts, together and spread, and
// "balanced". Left out are those that leave no experts for the rest. Returns the scenario named `filter`,
// otherwise those whose names contain `filter`. Throws InvalidArgument ("--scenarios") if there is none.
std::vector<std::string> scenario_names(const StudySetup& setup, const std::string& filter);

Series measure_scenarios(const StudySetup& setup, const std::string& filter, const NamedProgress& progress);

// "tokens, capacity-factor, imbalance-threshold, hidden, experts"
std::string_view ablation_names();
// Measures the ablation of one of these parameters. Throws InvalidArgument ("--ablation") for any other name.
// Throws BudgetTooSmall, before anything is measured, if the budget is too small for any point.
Series measure_ablation(const StudySetup& setup, const std::string& parameter, const NamedProgress& progress);

}  // namespace evenkeel
