// Layers of a model that a placement lacks, for example because a table routes them and nothing was recorded.
// If a server's file must have these layers, their experts stay where they are.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/io/model_config.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/routing/profile.h"

namespace evenkeel {

// Adds to `placement` those of `layers` (numbers in the model) that it lacks. In an added layer, physical
// expert i is expert i mod E, which is the servers' initial order; if ranks hold unequally many experts,
// homes are contiguous. A note names the added layers. A placement without layer numbers is returned
// unchanged.
Placement with_unplaced_layers(const Placement& placement, const std::vector<int>& layers,
                               const ModelLayers& model, std::vector<std::string>& notes);

// Completes a placement made from `profiles` with the model's other layers: from `before` if it has them,
// else as above. Layers without load count as missing. Without a model the placement stays unchanged; a note
// names the layers that only `before` has.
Placement of_all_layers(const Placement& placement, std::span<const RoutingProfile> profiles,
                        const std::optional<Placement>& before, const std::optional<ModelLayers>& model,
                        std::vector<std::string>& notes);

}  // namespace evenkeel
