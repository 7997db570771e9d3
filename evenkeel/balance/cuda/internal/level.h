// Level (balance/level.h) on lanes: the target, its search, and the settlement behind it.
//
// Departure  No small instance is searched: the plan is the host's with PlannerOptions::search_small false.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_room.h"
#include "evenkeel/balance/cuda/internal/settlement.h"

namespace evenkeel::cuda {

template <class Lanes>
class Level {
 public:
  // room.share and room.home_load are filled. `least_loaded` plans into room.kept and room.moves, and returns
  // its worst rank; it is asked where no settlement meets the ideal.
  EVENKEEL_HOST_DEVICE Level(const Lanes& lanes, const PlacementView& homes, PlannerRoom& room,
                             std::int32_t min_segment)
      : lanes_(lanes), homes_(homes), room_(room), min_segment_(min_segment) {}

  // The best settlement's moves go to room.best; returns its worst rank.
  EVENKEEL_HOST_DEVICE std::int32_t search_worst(std::int32_t ideal) {
    if (settle_at(ideal)) {
      room_.best.assign(lanes_, room_.moves);
      return ideal;
    }
    // With no move at all.
    std::int32_t best = lanes_.max(homes_.num_ranks, [&](int r) { return room_.home_load[r]; });
    room_.best.count = 0;
    keep(ideal, best);
    std::int32_t failed = ideal;
    while (failed + 1 < best) {
      const std::int32_t target = failed + (best - failed) / 2;
      if (!settle_at(target)) failed = target;
      keep(target, best);
    }
    return best;
  }

 private:
  EVENKEEL_HOST_DEVICE bool settle_at(std::int32_t worst) {
    lanes_.for_each(homes_.num_ranks, [&](int r) { room_.committed[r] = room_.home_load[r] - worst; });
    lanes_.for_each(homes_.num_slots, [&](int s) { room_.rest[s] = room_.share[s]; });
    room_.moves.count = 0;
    Settlement<Lanes> settlement(lanes_, homes_, room_.load, {room_.committed, room_.rest, room_.open},
                                 room_.moves, min_segment_);
    return settlement.settle();
  }

  EVENKEEL_HOST_DEVICE void keep(std::int32_t target, std::int32_t& best) {
    const std::int32_t worst =
        target + lanes_.max(homes_.num_ranks, [&](int r) { return room_.committed[r]; });
    if (worst >= best) return;
    best = worst;
    room_.best.assign(lanes_, room_.moves);
  }

  const Lanes& lanes_;
  const PlacementView& homes_;
  PlannerRoom& room_;
  std::int32_t min_segment_;
};

}  // namespace evenkeel::cuda
