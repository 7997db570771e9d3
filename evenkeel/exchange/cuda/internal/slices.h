// Counts the assignments of one slice by expert, and numbers each among the assignments to the same
// expert.
//
// Method  Each lane counts a run of consecutive assignments into its own table row. The rows are summed
//         across lanes, then each lane goes through its run again and numbers the assignments. The result
//         equals one sequential pass, whatever the number of lanes.
#pragma once

#include <cstdint>

#include "evenkeel/base/host_device.h"
#include "evenkeel/device/cuda/team.h"

namespace evenkeel::cuda {

// `table` has lanes * num_experts elements. Writes `counts` [E] of the slice, and `rank` [n]: each
// assignment's number among the slice's assignments to its expert.
template <class Team>
EVENKEEL_HOST_DEVICE void count_slice(const Team& team, const std::int32_t* experts, int n, int num_experts,
                                      int lanes, std::uint16_t* table, std::int32_t* counts,
                                      std::uint16_t* rank) {
  const int run = (n + lanes - 1) / lanes;
  const auto begin = [&](int lane) { return lane * run < n ? lane * run : n; };
  team.for_each(lanes * num_experts, [&](int i) { table[i] = 0; });
  team.sync();
  team.for_each(lanes, [&](int lane) {
    for (int a = begin(lane); a < begin(lane + 1); ++a) {
      EVENKEEL_DEVICE_CHECK(experts[a] >= -1 && experts[a] < num_experts);
      if (experts[a] >= 0) ++table[lane * num_experts + experts[a]];
    }
  });
  team.sync();
  team.for_each(num_experts, [&](int e) {
    int sum = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      const int own = table[lane * num_experts + e];
      table[lane * num_experts + e] = static_cast<std::uint16_t>(sum);
      sum += own;
    }
    counts[e] = sum;
  });
  team.sync();
  team.for_each(lanes, [&](int lane) {
    for (int a = begin(lane); a < begin(lane + 1); ++a)
      if (experts[a] >= 0) rank[a] = table[lane * num_experts + experts[a]]++;
  });
}

// For one expert: row s > 0 of `before` holds the count of slice s - 1, and becomes the sum over slices
// 0..s - 1. Row 0 becomes zero.
EVENKEEL_HOST_DEVICE inline void sum_slices(int expert, int num_experts, int num_slices,
                                            std::int32_t* before) {
  std::int32_t sum = 0;
  before[expert] = 0;
  for (int slice = 1; slice <= num_slices; ++slice) {
    sum += before[slice * num_experts + expert];
    before[slice * num_experts + expert] = sum;
  }
}

}  // namespace evenkeel::cuda
