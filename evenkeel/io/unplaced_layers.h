// Layers of a model that a placement was not made for, such as those that nobody recorded since a table
// routes them: where a file for a server must have them, their experts stay where they are.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/io/model_layers.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/routing/profile.h"

namespace evenkeel {

// `placement` with those of `layers` (the model's numbers) that it lacks: physical expert i of them is expert
// i mod E, as servers begin, or where ranks hold unequally many, homes are contiguous. A note names them. A
// placement without numbers is returned as it is.
Placement with_unplaced_layers(const Placement& placement, const std::vector<int>& layers,
                               const ModelLayers& model, std::vector<std::string>& notes);

// `placement` without the layers that none of the profiles has a load of: their homes mean nothing. As it is
// where it has no numbers, or no layer would be left.
Placement without_idle_layers(const Placement& placement, std::span<const RoutingProfile> profiles);

// `placement` with those of the model's layers that only `before` has, as they are there. A note names them,
// also where no model says which have experts and none is taken. Both have numbers, else nothing is done.
Placement with_layers_before(const Placement& placement, const Placement& before,
                             const std::optional<ModelLayers>& model, std::vector<std::string>& notes);

}  // namespace evenkeel
