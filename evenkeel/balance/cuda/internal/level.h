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
  // room.share, room.least and room.home_load are filled; home loads add up to `all_work`.
  EVENKEEL_HOST_DEVICE Level(const Lanes& lanes, PlannerRoom& room, std::int32_t all_work,
                             std::int32_t min_segment)
      : lanes_(lanes), room_(room), all_work_(all_work), min_segment_(min_segment) {}

  // The best settlement's moves go to room.best; returns its worst rank.
  EVENKEEL_HOST_DEVICE std::int32_t search_worst(std::int32_t ideal) {
    // With no move at all.
    std::int32_t best = lanes_.max(ranks(), [&](int r) { return room_.home_load[r]; });
    room_.best.count = 0;
    std::int32_t failed = ideal;
    for (std::int32_t target = ideal;; target = failed + (best - failed) / 2) {
      const bool settled = settle_at(target);
      const std::int32_t worst = settled && target == ideal ? ideal : target + most_left();
      if (worst < best || worst == ideal) {
        best = worst;
        room_.best.assign(lanes_, room_.moves);
      }
      if (!settled) failed = target;
      if (failed + 1 >= best) return best;
    }
  }

 private:
  EVENKEEL_HOST_DEVICE int ranks() const { return room_.homes.num_ranks; }

  EVENKEEL_HOST_DEVICE bool settle_at(std::int32_t worst) {
    lanes_.for_each(ranks(), [&](int r) { room_.committed[r] = room_.home_load[r] - worst; });
    lanes_.for_each(room_.homes.num_slots, [&](int s) { room_.rest[s] = room_.share[s]; });
    room_.moves.count = 0;
    Accounts<Lanes> accounts(lanes_, room_, min_segment_);
    return Settlement<Lanes>(accounts).settle(std::int64_t{ranks()} * worst - all_work_);
  }

  EVENKEEL_HOST_DEVICE std::int32_t most_left() const {
    return lanes_.max(ranks(), [&](int r) { return room_.committed[r]; });
  }

  const Lanes& lanes_;
  PlannerRoom& room_;
  std::int32_t all_work_;
  std::int32_t min_segment_;
};

}  // namespace evenkeel::cuda
