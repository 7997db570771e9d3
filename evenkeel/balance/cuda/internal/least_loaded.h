// Least-loaded assignment (balance/least_loaded.h) on lanes.
//
// Method  A rank's load is one sum: the work given so far and the home work still to come. It changes only
//         when work leaves home. So an expert whose home is within capacity stays whole whenever its turn
//         comes, and the lanes search for the next expert whose home is above capacity: the loop runs only
//         over experts that spill.
// Cost    O((E / lanes + spilled pieces) P / lanes).
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_buffers.h"

namespace evenkeel::cuda {

template <class Lanes>
class LeastLoaded {
 public:
  // On entry buffers.committed holds base loads and home loads, and buffers.kept the shares of slots. On
  // return buffers.kept holds what stays on each slot.
  EVENKEEL_HOST_DEVICE LeastLoaded(const Lanes& lanes, PlannerBuffers& buffers, std::int32_t capacity,
                                   std::int32_t min_segment)
      : lanes_(lanes),
        buffers_(buffers),
        homes_(buffers.homes),
        capacity_(capacity),
        min_segment_(min_segment) {}

  EVENKEEL_HOST_DEVICE void assign_all() {
    int turn = -1;
    while (any_is_over() && (turn = next_that_spills(turn)) >= 0) {
      const int expert = buffers_.order[turn];
      for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i)
        if (is_over(homes_.copies[i])) assign(homes_.copies[i]);
    }
  }

 private:
  EVENKEEL_HOST_DEVICE bool any_is_over() const {
    return lanes_.first(0, homes_.num_ranks, [&](int r) { return buffers_.committed[r] > capacity_; }) >= 0;
  }
  EVENKEEL_HOST_DEVICE int next_that_spills(int turn) const {
    return lanes_.first(turn + 1, homes_.num_experts, [&](int i) { return spills(buffers_.order[i]); });
  }
  EVENKEEL_HOST_DEVICE bool is_over(int slot) const {
    return buffers_.kept[slot] > 0 && buffers_.committed[homes_.slot_rank[slot]] > capacity_;
  }
  // Runs on one lane.
  EVENKEEL_HOST_DEVICE bool spills(int expert) const {
    for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i)
      if (is_over(homes_.copies[i])) return true;
    return false;
  }

  EVENKEEL_HOST_DEVICE void assign(int slot) {
    const int home = homes_.slot_rank[slot];
    const std::int32_t share = buffers_.kept[slot];
    const std::int32_t at_home = capacity_ - (buffers_.committed[home] - share);
    // `kept` is below the share, because the home is above capacity.
    const std::int32_t kept = at_home < 0 ? 0 : at_home;
    lanes_.once([&] {
      buffers_.kept[slot] = kept;
      buffers_.committed[home] -= share - kept;
    });
    for (std::int32_t rest = share - kept; rest > 0;) {
      const auto [rank, load] =
          lanes_.best(homes_.num_ranks, [&](int r) { return r == home ? kNoKey : buffers_.committed[r]; });
      const std::int32_t spare = capacity_ - load;
      const bool piece_fits = spare > 0 && spare >= min_segment_;
      const std::int32_t piece = piece_fits && spare < rest ? spare : rest;
      buffers_.moves.add(lanes_, slot, rank, piece,
                         [&, at = rank, now = load + piece] { buffers_.committed[at] = now; });
      rest -= piece;
    }
  }

  const Lanes& lanes_;
  PlannerBuffers& buffers_;
  const Homes& homes_;
  std::int32_t capacity_;
  std::int32_t min_segment_;
};

}  // namespace evenkeel::cuda
