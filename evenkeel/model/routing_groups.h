// The groups of experts that a model's router chooses first (n_group and topk_group of a config.json).
#pragma once

namespace evenkeel {

// The router chooses `chosen` of `count` groups of consecutive experts, then the top-k within those groups.
struct RoutingGroups {
  int count = 1;
  int chosen = 1;
  // False if all groups are chosen, which is the same as having none.
  bool bind() const { return chosen < count; }
};

}  // namespace evenkeel
