// The input of a planner on a device, and its output, the step plan. Both are flat arrays of 32-bit integers,
// with the same layout on host and device.
//
// Limit  A step's assignments and base loads together are fewer than 2^30, so every sum that a planner makes
//        fits in 32 bits. Only ratios need 64 bits.
#pragma once

#include <cstdint>

#include "evenkeel/base/host_device.h"

namespace evenkeel::cuda {

inline constexpr std::int32_t kMostLoad = std::int32_t{1} << 30;

// Homes of a layer's experts. A slot is one copy of an expert on one rank. Slots are numbered by rank, and by
// expert within a rank.
struct PlacementView {
  int num_experts = 0;
  int num_ranks = 0;
  int num_slots = 0;
  const std::int32_t* slot_begin = nullptr;    // [P + 1]
  const std::int32_t* slot_expert = nullptr;   // [S]
  const std::int32_t* slot_rank = nullptr;     // [S]
  const std::int32_t* slot_copy = nullptr;     // [S] index among its expert's copies; the owner's is 0
  const std::int32_t* copies_begin = nullptr;  // [E + 1]
  const std::int32_t* copies = nullptr;        // [S] the slots of each expert, its owner's first
};

// The number of integers in a placement, in the order of PlacementView's fields; and a view of a copy of
// these integers.
EVENKEEL_HOST_DEVICE inline int placement_integers(const PlacementView& sizes) {
  return sizes.num_ranks + 1 + sizes.num_experts + 1 + 4 * sizes.num_slots;
}
EVENKEEL_HOST_DEVICE inline PlacementView placement_at(const PlacementView& sizes, const std::int32_t* copy) {
  PlacementView view = sizes;
  view.slot_begin = copy;
  view.slot_expert = view.slot_begin + sizes.num_ranks + 1;
  view.slot_rank = view.slot_expert + sizes.num_slots;
  view.slot_copy = view.slot_rank + sizes.num_slots;
  view.copies_begin = view.slot_copy + sizes.num_slots;
  view.copies = view.copies_begin + sizes.num_experts + 1;
  return view;
}

// A step plan (plan/step_plan.h): the segments of expert e are [segment_begin[e], segment_begin[e + 1]), and
// segment_end, counted within the expert, is the end of each.
struct PlanView {
  std::int32_t* segment_begin = nullptr;    // [E + 1]
  std::int32_t* segment_rank = nullptr;     // [most_segments]
  std::int32_t* segment_end = nullptr;      // [most_segments]
  std::int32_t* transfer_expert = nullptr;  // [most_segments], in the planner's order
  std::int32_t* transfer_from = nullptr;
  std::int32_t* transfer_to = nullptr;
  std::int32_t* num_transfers = nullptr;    // [1]
  std::int32_t* rank_loads = nullptr;       // [P]
  std::int32_t* fell_back_to_ep = nullptr;  // [1], whether plain ep replaced a plan that borrows too much
};

// Upper bounds for any planner: the number of moves away from slots, and of segments.
EVENKEEL_HOST_DEVICE constexpr int most_moves(int slots, int ranks) {
  return slots + 8 * ranks;
}
EVENKEEL_HOST_DEVICE constexpr int most_segments(int slots, int ranks) {
  return slots + most_moves(slots, ranks);
}

}  // namespace evenkeel::cuda
