// Turns options into the planner they name.
#include <fmt/format.h>

#include <cmath>

#include "evenkeel/balance/by_gain.h"
#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/least_loaded.h"
#include "evenkeel/balance/level.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

void validate_options(const PlannerOptions& options) {
  if (options.capacity_factor_thousandths < 1000)
    throw InvalidArgument("capacity_factor",
                          fmt::format("{} thousandths", options.capacity_factor_thousandths),
                          "1000 or more: ranks must be able to hold the mean");
  if (options.min_segment < 0)
    throw InvalidArgument("min_segment", fmt::format("{}", options.min_segment), "0 or more");
  if (options.imbalance_threshold_thousandths < 0)
    throw InvalidArgument("imbalance_threshold",
                          fmt::format("{} thousandths", options.imbalance_threshold_thousandths),
                          "0 (always plan) or more");
  if (!options.costs) return;
  for (const double seconds : {options.costs->seconds_per_assignment, options.costs->seconds_per_transfer,
                               options.costs->seconds_per_step})
    if (!(seconds >= 0 && std::isfinite(seconds)))
      throw InvalidArgument("costs", fmt::format("{} seconds", seconds), "seconds from 0");
}

std::unique_ptr<Planner> planner_of(const PlannerOptions& options) {
  switch (options.kind) {
    case PlannerOptions::Kind::ep:
      return std::make_unique<Ep>();
    case PlannerOptions::Kind::least_loaded:
      return std::make_unique<LeastLoaded>(options);
    case PlannerOptions::Kind::level:
      return std::make_unique<Level>(options);
  }
  EVENKEEL_CHECK(false);
}

}  // namespace

std::string_view name_of(PlannerOptions::Kind kind) {
  constexpr std::string_view names[] = {"ep", "least-loaded", "level"};
  return names[static_cast<std::size_t>(kind)];
}

PlannerOptions::Kind parse_planner(std::string_view name, const std::string& argument) {
  using Kind = PlannerOptions::Kind;
  for (const Kind kind : {Kind::ep, Kind::least_loaded, Kind::level})
    if (name_of(kind) == name) return kind;
  throw InvalidArgument(argument, fmt::format("'{}' is no planner", name), "ep, least-loaded, level");
}

std::unique_ptr<Planner> make_planner(const PlannerOptions& options) {
  validate_options(options);
  if (!options.costs || options.kind == PlannerOptions::Kind::ep) return planner_of(options);
  return std::make_unique<ByGain>(planner_of(options), *options.costs);
}

}  // namespace evenkeel
