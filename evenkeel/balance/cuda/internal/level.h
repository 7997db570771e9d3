// Level (balance/level.h) on lanes: the target, the search for it, and the matching for each target tried.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/excess_matcher.h"
#include "evenkeel/balance/cuda/internal/planner_buffers.h"

namespace evenkeel::cuda {

template <class Lanes>
class Level {
 public:
  // buffers.share, buffers.least and buffers.home_load must be filled; home loads add up to `all_work`.
  EVENKEEL_HOST_DEVICE Level(const Lanes& lanes, PlannerBuffers& buffers, std::int32_t all_work,
                             std::int32_t min_segment)
      : lanes_(lanes), buffers_(buffers), all_work_(all_work), min_segment_(min_segment) {}

  // Fills buffers.best with the best matching's moves; returns its worst rank load.
  EVENKEEL_HOST_DEVICE std::int32_t search_worst(std::int32_t ideal) {
    // The load of the worst rank without any move.
    std::int32_t best = lanes_.max(ranks(), [&](int r) { return buffers_.home_load[r]; });
    buffers_.best.count = 0;
    std::int32_t failed = ideal;
    for (std::int32_t target = ideal;; target = failed + (best - failed) / 2) {
      const bool settled = settle_at(target);
      const std::int32_t worst = settled && target == ideal ? ideal : target + most_left();
      if (worst < best || worst == ideal) {
        best = worst;
        buffers_.best.assign(lanes_, buffers_.moves);
      }
      if (!settled) failed = target;
      if (failed + 1 >= best) return best;
    }
  }

 private:
  EVENKEEL_HOST_DEVICE int ranks() const { return buffers_.homes.num_ranks; }

  EVENKEEL_HOST_DEVICE bool settle_at(std::int32_t worst) {
    lanes_.for_each(ranks(), [&](int r) { buffers_.committed[r] = buffers_.home_load[r] - worst; });
    lanes_.for_each(buffers_.homes.num_slots, [&](int s) { buffers_.rest[s] = buffers_.share[s]; });
    buffers_.moves.count = 0;
    MatchState<Lanes> state(lanes_, buffers_, min_segment_);
    return ExcessMatcher<Lanes>(state).settle(std::int64_t{ranks()} * worst - all_work_);
  }

  EVENKEEL_HOST_DEVICE std::int32_t most_left() const {
    return lanes_.max(ranks(), [&](int r) { return buffers_.committed[r]; });
  }

  const Lanes& lanes_;
  PlannerBuffers& buffers_;
  std::int32_t all_work_;
  std::int32_t min_segment_;
};

}  // namespace evenkeel::cuda
