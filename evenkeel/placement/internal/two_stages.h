// MoETuner's two programs, one after the other: experts into clusters that are level (clusters/), and ranks
// for the clusters (ranks/).
#pragma once

#include <string>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/place.h"

namespace evenkeel::internal {

PlaceResult place_in_two_stages(const PlacementProblem& problem, const PlaceOptions& options,
                                const Deadline& deadline);

// Those of a stage that has so many seconds; `all` must outlive them. Its progress counts seconds since the
// first stage began.
SolveLimits limits_of_stage(const SolveLimits& all, const Deadline& deadline, double seconds);

// The bound is what is told: a stage that has proven its objective says the objective.
void add_objective(PlaceResult& solved, const std::string& name, double objective, double bound,
                   std::string bound_of);

}  // namespace evenkeel::internal
