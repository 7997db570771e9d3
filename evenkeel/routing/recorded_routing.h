// The routing of one file, as placements are made from it and judged on it.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/routing/layer_numbers.h"
#include "evenkeel/routing/profile.h"

namespace evenkeel {

struct RecordedRouting {
  std::string name;  // its file, for messages
  RoutingProfile profile;
  std::vector<RoutingProfile> steps = {};  // where they are told apart
  std::vector<std::string> notes = {};     // of what was read otherwise than the file has it

  NumberedRows rows() const { return {name, profile.layers(), profile.num_layers()}; }
};

}  // namespace evenkeel
