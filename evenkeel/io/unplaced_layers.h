// Layers of a model that a placement was not made for, such as those that nobody recorded since a table
// routes them: where a file for a server must have them, their experts stay where they are.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/io/model_config.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/routing/profile.h"

namespace evenkeel {

// `placement` with those of `layers` (the model's numbers) that it lacks: physical expert i of them is expert
// i mod E, as servers begin, or where ranks hold unequally many, homes are contiguous. A note names them. A
// placement without numbers is returned as it is.
Placement with_unplaced_layers(const Placement& placement, const std::vector<int>& layers,
                               const ModelLayers& model, std::vector<std::string>& notes);

// A placement made from the profiles, with the model's other layers as above, or as `before` has them; layers
// without load are among those. Without a model, as it is; a note names what `before` has more.
Placement of_all_layers(const Placement& placement, std::span<const RoutingProfile> profiles,
                        const std::optional<Placement>& before, const std::optional<ModelLayers>& model,
                        std::vector<std::string>& notes);

}  // namespace evenkeel
