// The experts that each rank borrows under a plan, and the borrow slot of each.
#pragma once

#include <cstdint>

#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel::cuda {

// Fills the step's tables of borrowed experts and groups. No rank borrows more than most_borrowed() experts.
template <class Team>
EVENKEEL_HOST_DEVICE void borrow(const Team& team, const RouteShape& shape, const PlacementView& homes,
                                 const StepView& step) {
  const int first_slot = homes.slot_begin[shape.me];
  team.for_each(shape.most_borrowed(), [&](int b) { step.borrowed_expert[b] = -1; });
  team.for_each(shape.num_experts, [&](int e) { step.group_of[e] = -1; });
  team.sync();
  team.for_each(shape.num_natives, [&](int n) { step.group_of[homes.slot_expert[first_slot + n]] = n; });
  team.for_each(*step.plan.num_transfers, [&](int t) {
    const std::int32_t to = step.plan.transfer_to[t];
    int index = 0;
    for (int earlier = 0; earlier < t; ++earlier) index += step.plan.transfer_to[earlier] == to ? 1 : 0;
    step.borrowed_index[t] = index;
    if (to != shape.me) return;
    step.borrowed_expert[index] = step.plan.transfer_expert[t];
    step.borrowed_from[index] = step.plan.transfer_from[t];
    step.group_of[step.plan.transfer_expert[t]] = shape.num_natives + index;
  });
  team.sync();
}

}  // namespace evenkeel::cuda
