// Which expert of a rank a move takes (balance/local_rows.h), on lanes.
//
// Method  Moves change nothing for those of other senders, where experts have one home each, so that a warp
//         takes a sender. Each of its lanes looks for something better for one move; the first move that
//         finds it changes, and those behind it look again.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_room.h"

namespace evenkeel::cuda {

template <class Lanes>
class LocalRows {
 public:
  // `counts` [P][E]; room.rest is what stays of each slot beside room.best.
  EVENKEEL_HOST_DEVICE LocalRows(const Lanes& lanes, PlannerRoom& room, const std::int32_t* counts)
      : lanes_(lanes),
        homes_(room.homes),
        counts_(counts),
        least_(room.least),
        rest_(room.rest),
        moves_(room.best) {}

  // All moves for which `is_included`, in their order.
  template <class Predicate>
  EVENKEEL_HOST_DEVICE void improve(const Predicate& is_included) {
    EVENKEEL_UNROLL(1)
    for (int begin = 0; begin < moves_.count; begin += lanes_.size()) {
      const int move = begin + lanes_.rank();
      improve_in_turn(move, move < moves_.count && is_included(move));
    }
  }

 private:
  // A move a lane.
  EVENKEEL_HOST_DEVICE void improve_in_turn(int move, bool is_included) {
    for (int done = -1;;) {
      const int better = is_included && lanes_.rank() > done ? better_slot(move) : -1;
      done = lanes_.first_lane(better >= 0);
      if (done < 0) return;
      lanes_.sync();
      if (lanes_.rank() == done) take(move, better);
      lanes_.sync();
    }
  }
  EVENKEEL_HOST_DEVICE void take(int move, int slot) {
    rest_[moves_.slot[move]] += moves_.amount[move];
    rest_[slot] -= moves_.amount[move];
    moves_.slot[move] = slot;
  }

  // On one lane; -1 where none is better.
  EVENKEEL_HOST_DEVICE int better_slot(int move) const {
    const int slot = moves_.slot[move], to = moves_.to[move];
    const std::int32_t amount = moves_.amount[move];
    const int home = homes_.slot_rank[slot];
    int best = -1;
    std::int32_t most = 0;
    EVENKEEL_UNROLL(1)
    for (int s = homes_.slot_begin[home]; s < homes_.slot_begin[home + 1]; ++s) {
      if (s == slot || rest_[s] < amount || amount < least_[s]) continue;
      const std::int32_t gain =
          moving_gains(s, home, to, amount, -1) + moving_gains(slot, home, to, amount, 1);
      if (gain <= most || is_on(s, to)) continue;
      best = s;
      most = gain;
    }
    return best;
  }

  // Rows of the expert that stay on a rank which computes `count` of its assignments.
  EVENKEEL_HOST_DEVICE std::int32_t kept(int slot, int rank, std::int32_t count) const {
    const std::int32_t own = counts_[rank * homes_.num_experts + homes_.slot_expert[slot]];
    return count < own ? count : own;
  }
  EVENKEEL_HOST_DEVICE std::int32_t moving_gains(int slot, int home, int to, std::int32_t amount,
                                                 std::int32_t direction) const {
    return kept(slot, home, rest_[slot] + direction * amount) - kept(slot, home, rest_[slot]) -
           direction * kept(slot, to, amount);
  }
  // Of moves of other senders, which their warps may be changing, none is of an expert with one home here.
  EVENKEEL_HOST_DEVICE bool is_on(int slot, int rank) const {
    const int expert = homes_.slot_expert[slot];
    bool is = false;
    for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i)
      is = is || homes_.slot_rank[homes_.copies[i]] == rank;
    EVENKEEL_UNROLL(4)
    for (int i = 0; i < moves_.count; ++i)
      if (moves_.to[i] == rank) is = is || homes_.slot_expert[moves_.slot[i]] == expert;
    return is;
  }

  const Lanes& lanes_;
  const Homes& homes_;
  const std::int32_t* counts_;
  const Array least_;
  const Array rest_;
  const MoveList& moves_;
};

}  // namespace evenkeel::cuda
