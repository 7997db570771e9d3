// A planner by the name that people give it.
#pragma once

#include <string>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/error.h"

namespace evenkeel::python {

inline PlannerOptions::Kind planner_kind(const std::string& planner) {
  using Kind = PlannerOptions::Kind;
  if (planner == "ep") return Kind::ep;
  if (planner == "least-loaded") return Kind::least_loaded;
  if (planner == "level") return Kind::level;
  throw InvalidArgument("planner", "'" + planner + "' is no planner", "ep, least-loaded, level");
}

}  // namespace evenkeel::python
