// The groups of experts that one object of a config.json speaks of.
#pragma once

#include <optional>

#include "evenkeel/io/internal/config_keys.h"
#include "evenkeel/model/family.h"
#include "evenkeel/model/routing_groups.h"

namespace evenkeel::internal {

// By which a config says how many groups there are; families name it in their own ways.
inline constexpr const char* group_count_key = "n_group";

// Nothing where no key says it, though the family always chooses groups. Throws ParseError: a number that
// cannot be, or experts that are not equally many in the groups.
std::optional<RoutingGroups> routing_groups(const ConfigKeys& config, const Family& family, int num_experts);

}  // namespace evenkeel::internal
