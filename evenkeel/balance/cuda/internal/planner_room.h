// The working memory of a planner: a few arrays, carved from one piece (shared memory on a device).
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/balance/cuda/internal/moves.h"
#include "evenkeel/plan/cuda/step_view.h"

namespace evenkeel::cuda {

struct PlannerRoom {
  std::int32_t* load;       // [E]
  std::int32_t* order;      // [E], experts by decreasing load
  std::int32_t* share;      // [S], of a slot, before any move
  std::int32_t* rest;       // [S], what stays
  std::int32_t* kept;       // [S], what least-loaded leaves, while level's plan is in `rest`
  std::int32_t* home_load;  // [P], base loads included
  std::int32_t* committed;  // [P]; level's balances
  std::int32_t* open;       // [P]
  std::int32_t* queue;      // [3 P], of searches over copies
  MoveList moves;           // being made
  MoveList best;            // of level, so far
  std::int32_t* verdict;    // [4], from the leading lanes to all

  // The number of integers, and the arrays in a piece of so many.
  static EVENKEEL_HOST_DEVICE int integers(int experts, int slots, int ranks) {
    return 2 * experts + 3 * slots + 6 * ranks + 6 * most_moves(slots, ranks) + 4;
  }
  static EVENKEEL_HOST_DEVICE PlannerRoom carve(std::int32_t* at, const PlacementView& homes) {
    const auto take = [&at](int count) {
      std::int32_t* const begin = at;
      at += count;
      return begin;
    };
    const int experts = homes.num_experts, slots = homes.num_slots, ranks = homes.num_ranks;
    const int most = most_moves(slots, ranks);
    PlannerRoom room{};
    room.load = take(experts);
    room.order = take(experts);
    room.share = take(slots);
    room.rest = take(slots);
    room.kept = take(slots);
    room.home_load = take(ranks);
    room.committed = take(ranks);
    room.open = take(ranks);
    room.queue = take(3 * ranks);
    room.moves = {take(most), take(most), take(most), most, 0};
    room.best = {take(most), take(most), take(most), most, 0};
    room.verdict = take(4);
    return room;
  }
};

// copy_share() of balance/step_input.h for 32 bits.
EVENKEEL_HOST_DEVICE inline std::int32_t share_of_copy(std::int32_t load, std::int32_t copies,
                                                       std::int32_t copy) {
  if (copies == 1) return load;
  return load / copies + (copy < load % copies ? 1 : 0);
}

EVENKEEL_HOST_DEVICE inline std::int32_t copies_of(const PlacementView& homes, int expert) {
  return homes.copies_begin[expert + 1] - homes.copies_begin[expert];
}

}  // namespace evenkeel::cuda
