// The LLEP paper's scenarios (arXiv 2601.17111), and its ablations as series of points: the planners beside
// plain ep.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/study/study_setup.h"

namespace evenkeel {

struct SeriesRow {
  std::string value;  // of what the ablation varies
  std::string scenario;
  Figures figures;
  // The worst rank's peak / the same planner's under "balanced"; 0 where that is not among the scenarios.
  double ep_peak_ratio = 0;
  std::vector<double> peak_ratios;  // by planner
};

struct Series {
  StudySetup setup;       // of the first point
  std::string parameter;  // of an ablation, such as "hidden"; empty for the scenario table
  std::vector<SeriesRow> rows;
};

// Of 30, 50, 80 and 95 % into 1, 4 and 16 experts, together and spread, and balanced, as far as they leave
// some of the layer's experts for the rest: the one of this name, or else those whose names contain `filter`.
// Throws InvalidArgument ("--scenarios") if none does.
std::vector<std::string> scenario_names(const StudySetup& setup, const std::string& filter);

Series measure_scenarios(const StudySetup& setup, const std::string& filter, const NamedProgress& progress);

// "tokens, capacity-factor, imbalance-threshold, hidden, experts"
std::string_view ablation_names();
// Of one of these parameters. Throws InvalidArgument ("--ablation") for another, and BudgetTooSmall before
// anything is measured where the budget is below the least of any point.
Series measure_ablation(const StudySetup& setup, const std::string& parameter, const NamedProgress& progress);

}  // namespace evenkeel
