// Experts by decreasing load, equal loads by ascending id: each expert counts those before it.
//
// Cost  O(E^2 / lanes), a fraction of a microsecond for hundreds of experts on a block; no data moves.
#pragma once

#include <cstdint>

#include "evenkeel/device/cuda/team.h"

namespace evenkeel::cuda {

// order[i] is the i-th of the experts. The load of an expert with copies is what its first copy has.
template <class Team, class Load>
EVENKEEL_HOST_DEVICE void order_experts(const Team& team, int experts, const Load& load,
                                        std::int32_t* order) {
  team.for_each(experts, [&](int expert) {
    const std::int32_t own = load(expert);
    int before = 0;
    for (int other = 0; other < experts; ++other) {
      const std::int32_t its = load(other);
      before += its > own || (its == own && other < expert) ? 1 : 0;
    }
    order[before] = expert;
  });
  team.sync();
}

}  // namespace evenkeel::cuda
