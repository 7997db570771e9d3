// MoETuner's two programs, one after the other: splitting experts into level clusters (clusters/), then ranks
// for the clusters (ranks/).
#pragma once

#include <string>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/place.h"

namespace evenkeel::internal {

PlaceResult place_in_two_stages(const PlacementProblem& problem, const PlaceOptions& options,
                                const Deadline& deadline);

// Limits of a stage that has `seconds`; `all` must outlive them. Progress counts seconds since the first
// stage began.
SolveLimits limits_of_stage(const SolveLimits& all, const Deadline& deadline, double seconds);

// Records an objective and its bound by name. A bound above the objective is lowered to it.
void add_objective(PlaceResult& solved, const std::string& name, double objective, double bound,
                   std::string bound_of);

}  // namespace evenkeel::internal
