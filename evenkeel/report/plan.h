// Reports `evenkeel plan`: one layer's step plan, or those of several layers, compared with the plan of plain
// expert parallelism.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/plan/step_plan.h"
#include "evenkeel/report/html.h"

namespace evenkeel {

struct PlannedStep {
  std::string planner;
  StepPlan plan = {};
  StepPlan plain = {};  // the plan under ep
  std::int64_t assignments = 0;
  std::int64_t transfer_lower_bound = 0;
  double plan_us = 0;
  std::optional<PredictedSteps> on_links = {};
  std::map<std::string, std::string> axes = {};  // how unnamed arrays were read, by file
};

struct PlannedLayer {
  int layer = 0;
  PlannedStep step;
};

struct PlannedLayers {
  std::vector<PlannedLayer> steps = {};       // by planner, then by layer; at least one
  std::optional<double> borrowed_bytes = {};  // bytes sent for one borrowed expert, if known
  std::map<std::string, std::string> axes = {};
};

std::string to_text(const PlannedStep& step);
std::string to_json(const PlannedStep& step);
std::string to_html(const PlannedStep& step, const PageOrigin& origin);
std::string to_text(const PlannedLayers& layers);
std::string to_json(const PlannedLayers& layers);
std::string to_html(const PlannedLayers& layers, const PageOrigin& origin);

}  // namespace evenkeel
