// Whether renumbered experts keep the groups that a model chooses from.
#pragma once

#include <span>
#include <string>

#include "evenkeel/base/index.h"
#include "evenkeel/io/internal/checkpoint/checkpoint_config.h"

namespace evenkeel::internal {

// Group g of a model is its experts [g E / G, (g + 1) E / G). A token's experts come from the few groups
// whose best experts score highest, so a new order computes the same only if it takes whole groups to whole
// groups. Throws Infeasible where it does not, with `where` ("layer 3") and two experts that show it.
void require_whole_groups(std::span<const ExpertId> order, const ExpertGroups& groups,
                          const std::string& where);

}  // namespace evenkeel::internal
