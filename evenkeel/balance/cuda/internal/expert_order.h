// Orders experts by decreasing load, and equal loads by ascending id. An expert's position is found by
// counting the experts before it.
//
// Cost  O(E^2 / lanes), two microseconds for 384 experts on a block; no data moves.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_buffers.h"
#include "evenkeel/device/cuda/team.h"

namespace evenkeel::cuda {

// Fills order[i] with the i-th expert. `load` must be visible to all lanes; `before` is scratch, an item for
// each expert.
template <class Team>
EVENKEEL_HOST_DEVICE void order_experts(const Team& team, int experts, const Array& load, const Array& before,
                                        const Array& order) {
  share_out(team, experts, [&](int expert) { before[expert] = 0; });
  team.sync();
  share_out_in_parts(team, experts, [&](int expert, int first, int step) {
    const std::int32_t own = load[expert];
    int count = 0, other = first;
    EVENKEEL_UNROLL_BY(8)
    for (; other < expert; other += step) count += load[other] >= own ? 1 : 0;
    EVENKEEL_UNROLL_BY(8)
    for (; other < experts; other += step) count += load[other] > own ? 1 : 0;
    add(&before[expert], count);
  });
  team.sync();
  share_out(team, experts, [&](int expert) { order[before[expert]] = expert; });
  team.sync();
}

}  // namespace evenkeel::cuda
