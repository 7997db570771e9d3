// Draws a step plan.
#pragma once

#include <string>

#include "evenkeel/plan/step_plan.h"
#include "evenkeel/report/internal/html_page.h"

namespace evenkeel::internal {

// A panel of a section `plan`: what each rank computes, split by the rank whose weights it uses, and which
// weights are sent.
Json plan_panel(const std::string& name, const StepPlan& plan);

}  // namespace evenkeel::internal
