// Least-loaded assignment (balance/least_loaded.h) on lanes.
//
// Method  What a rank has been given and what of its home work is still to come is one sum, which
//         changes only when work leaves home. So an expert whose home is within capacity stays whole,
//         whatever its turn, and the lanes look for the next one whose home is not: the loop runs over
//         experts that spill.
// Cost    O((E / lanes + spilled pieces) P / lanes).
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_room.h"

namespace evenkeel::cuda {

template <class Lanes>
class LeastLoaded {
 public:
  // `committed` holds base loads and home loads; `kept` the shares of slots, which become what stays.
  EVENKEEL_HOST_DEVICE LeastLoaded(const Lanes& lanes, const PlacementView& homes, const std::int32_t* order,
                                   std::int32_t* committed, std::int32_t* kept, MoveList& moves,
                                   std::int32_t capacity, std::int32_t min_segment)
      : lanes_(lanes),
        homes_(homes),
        order_(order),
        committed_(committed),
        kept_(kept),
        moves_(moves),
        capacity_(capacity),
        min_segment_(min_segment) {}

  EVENKEEL_HOST_DEVICE void assign_all() {
    int turn = 0;
    while ((turn = lanes_.first(turn, homes_.num_experts, [&](int i) { return spills(order_[i]); })) >= 0) {
      const int expert = order_[turn++];
      for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i)
        if (is_over(homes_.copies[i])) assign(homes_.copies[i]);
    }
  }

 private:
  EVENKEEL_HOST_DEVICE bool is_over(int slot) const {
    return kept_[slot] > 0 && committed_[homes_.slot_rank[slot]] > capacity_;
  }
  // On one lane.
  EVENKEEL_HOST_DEVICE bool spills(int expert) const {
    for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i)
      if (is_over(homes_.copies[i])) return true;
    return false;
  }

  EVENKEEL_HOST_DEVICE void assign(int slot) {
    const int home = homes_.slot_rank[slot];
    const std::int32_t share = kept_[slot];
    const std::int32_t room = capacity_ - (committed_[home] - share);
    const std::int32_t kept = room < 0 ? 0 : room;  // below the share, since the home is over
    lanes_.once([&] {
      kept_[slot] = kept;
      committed_[home] -= share - kept;
    });
    for (std::int32_t rest = share - kept; rest > 0;) {
      const int rank =
          lanes_.best(homes_.num_ranks, [&](int r) { return r == home ? kNoKey : committed_[r]; });
      const std::int32_t space = capacity_ - committed_[rank];
      const bool room_for_piece = space > 0 && space >= min_segment_;
      const std::int32_t piece = room_for_piece && space < rest ? space : rest;
      lanes_.once([&] { committed_[rank] += piece; });
      moves_.add(lanes_, slot, rank, piece);
      rest -= piece;
    }
  }

  const Lanes& lanes_;
  const PlacementView& homes_;
  const std::int32_t* order_;
  std::int32_t* committed_;
  std::int32_t* kept_;
  MoveList& moves_;
  std::int32_t capacity_;
  std::int32_t min_segment_;
};

}  // namespace evenkeel::cuda
