// The measurements of `evenkeel bench`: the paper's scenarios, and its ablations as series of points.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/experiment.h"
#include "cli/layer_options.h"

namespace evenkeel::cli {

struct BenchSetup {
  LayerOptions layer;
  std::int64_t ranks = 8;
  std::int64_t tokens = 2048;  // for each rank
  std::int64_t pairs = 41;
  bool backward = false;
  PlannerOptions parameters;
  std::vector<PlannerOptions> planners;
  Budget budget;
};

// By the name of the measurement under way: its progress, in rounds done of all.
using NamedProgress = std::function<Progress(const std::string& what)>;

// One layer and what is run on it.
struct BenchPoint {
  BenchSetup setup;
  std::string parameter;  // of an ablation, such as "hidden"; empty for the scenario table
  std::string value;
  std::vector<std::string> scenarios;

  std::string name() const { return parameter.empty() ? "scenarios" : parameter + " " + value; }
};

struct BenchRow {
  std::string parameter;
  std::string value;
  std::string scenario;
  Figures figures;
  // The worst rank's peak / the same planner's under "balanced"; 0 where that is not among the scenarios.
  double ep_peak_ratio = 0;
  std::vector<double> peak_ratios;  // by planner
};

// 30, 50, 80 and 95 % into 1, 4 and 16 experts, together and spread, and balanced, as far as their names
// contain `filter` and leave some of the layer's experts for the rest. Throws InvalidArgument if none does.
BenchPoint scenario_point(const BenchSetup& setup, const std::string& filter);

// "tokens, capacity-factor, imbalance-threshold, hidden, experts"
std::string_view ablation_names();
// The series of one of these. Throws InvalidArgument for another name.
std::vector<BenchPoint> ablation_points(const BenchSetup& setup, const std::string& name);

// Throws BudgetTooSmall where the point's budget is below the layer's least; nothing large is made.
void require_budget(const BenchPoint& point);

std::vector<BenchRow> measure_point(const BenchPoint& point, const Progress& progress);

}  // namespace evenkeel::cli
