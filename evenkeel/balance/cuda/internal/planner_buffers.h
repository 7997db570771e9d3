// The working memory of a planner: a few arrays, carved from one piece.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/memory.h"
#include "evenkeel/balance/cuda/internal/moves.h"
#include "evenkeel/plan/cuda/step_view.h"

namespace evenkeel::cuda {

// A PlacementView in the planner's memory.
struct Homes {
  int num_experts;
  int num_ranks;
  int num_slots;
  Array all;           // of the arrays below, which lie in it in this order
  Array slot_begin;    // [P + 1]
  Array slot_expert;   // [S]
  Array slot_rank;     // [S]
  Array slot_copy;     // [S]
  Array copies_begin;  // [E + 1]
  Array copies;        // [S]

  EVENKEEL_HOST_DEVICE int copies_of(int expert) const {
    return copies_begin[expert + 1] - copies_begin[expert];
  }
  EVENKEEL_HOST_DEVICE bool has_single_homes() const { return num_slots == num_experts; }
};

struct PlannerBuffers {
  Homes homes;
  Array base;            // [P]
  Array load;            // [E]
  Array order;           // [E], experts by decreasing load; where segments begin
  Array share;           // [S], of a slot, before any move
  Array least;           // [S], the fewest that may leave it for a rank without a copy
  Array rest;            // [S], what stays
  Array kept;            // [S], what least-loaded leaves, while level's plan is in `rest`
  Array home_load;       // [P], base loads included
  Array committed;       // [P]; level's balances
  Array queue;           // [3 P], of searches over copies; marks of ranks
  MoveList moves;        // being made
  MoveList best;         // of level, so far
  Array first_scratch;   // [most_moves]
  Array second_scratch;  // [most_moves]
  Array verdict;         // [4], from the leading lanes to all

  // The number of integers, and the arrays in a piece of so many.
  static EVENKEEL_HOST_DEVICE int integers(const PlacementView& sizes) {
    ArrayCarver carver(nullptr);
    carve(carver, sizes);
    return carver.taken();
  }
  static EVENKEEL_HOST_DEVICE PlannerBuffers in(std::int32_t* piece, const PlacementView& sizes) {
    ArrayCarver carver(piece);
    return carve(carver, sizes);
  }

 private:
  static EVENKEEL_HOST_DEVICE Homes carve_homes(ArrayCarver& carver, const PlacementView& sizes) {
    const int experts = sizes.num_experts, slots = sizes.num_slots, ranks = sizes.num_ranks;
    Homes homes{experts, ranks, slots, {}, {}, {}, {}, {}, {}, {}};
    homes.all = homes.slot_begin = carver.take(ranks + 1);
    homes.slot_expert = carver.take(slots);
    homes.slot_rank = carver.take(slots);
    homes.slot_copy = carver.take(slots);
    homes.copies_begin = carver.take(experts + 1);
    homes.copies = carver.take(slots);
    return homes;
  }
  static EVENKEEL_HOST_DEVICE PlannerBuffers carve(ArrayCarver& carver, const PlacementView& sizes) {
    const int experts = sizes.num_experts, slots = sizes.num_slots, ranks = sizes.num_ranks;
    const int most = most_moves(slots, ranks);
    const auto take_moves = [&] {
      MoveList moves;
      moves.slot = carver.take(most);
      moves.to = carver.take(most);
      moves.amount = carver.take(most);
      moves.capacity = most;
      return moves;
    };
    PlannerBuffers buffers{};
    buffers.homes = carve_homes(carver, sizes);
    buffers.load = carver.take(experts);
    buffers.order = carver.take(experts);
    buffers.share = carver.take(slots);
    buffers.least = carver.take(slots);
    buffers.rest = carver.take(slots);
    buffers.kept = carver.take(slots);
    buffers.base = carver.take(ranks);
    buffers.home_load = carver.take(ranks);
    buffers.committed = carver.take(ranks);
    buffers.queue = carver.take(3 * ranks);
    buffers.moves = take_moves();
    buffers.best = take_moves();
    buffers.first_scratch = carver.take(most);
    buffers.second_scratch = carver.take(most);
    buffers.verdict = carver.take(4);
    return buffers;
  }
};

// copy_share() of balance/step_input.h for 32 bits.
EVENKEEL_HOST_DEVICE inline std::int32_t share_of_copy(std::int32_t load, std::int32_t copies,
                                                       std::int32_t copy) {
  if (copies == 1) return load;
  return load / copies + (copy < load % copies ? 1 : 0);
}

}  // namespace evenkeel::cuda
