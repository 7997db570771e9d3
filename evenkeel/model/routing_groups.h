// The groups of experts that a model's router chooses first (n_group and topk_group of a config.json).
#pragma once

namespace evenkeel {

// A model that first chooses `chosen` of `count` groups of consecutive experts, then experts among theirs.
struct RoutingGroups {
  int count = 1;
  int chosen = 1;
  // All groups are chosen: as if there were none.
  bool bind() const { return chosen < count; }
};

}  // namespace evenkeel
