// The result of `evenkeel plan`: one step plan, beside the plain one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "evenkeel/balance/planner.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

struct PlannedStep {
  std::string planner;
  StepPlan plan = {};
  StepPlan plain = {};  // under ep
  std::int64_t assignments = 0;
  std::int64_t transfer_lower_bound = 0;
  double plan_us = 0;
  std::optional<PredictedSteps> on_links = {};
  std::map<std::string, std::string> axes = {};  // how loads that nobody named were read, by file
};

std::string to_text(const PlannedStep& step);
std::string to_json(const PlannedStep& step);

}  // namespace evenkeel
