// Which expert of a rank a move takes (balance/local_rows.h), on lanes.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_room.h"

namespace evenkeel::cuda {

template <class Lanes>
class LocalRows {
 public:
  // `counts` [P][E]; `rest` is what stays of each slot beside the moves.
  EVENKEEL_HOST_DEVICE LocalRows(const Lanes& lanes, const PlacementView& homes, const std::int32_t* counts,
                                 const std::int32_t* load, std::int32_t min_segment, std::int32_t* rest,
                                 MoveList& moves)
      : lanes_(lanes),
        homes_(homes),
        counts_(counts),
        load_(load),
        min_segment_(min_segment),
        rest_(rest),
        moves_(moves) {}

  EVENKEEL_HOST_DEVICE void improve_all() {
    for (int i = 0; i < moves_.count; ++i) improve(i);
  }

 private:
  EVENKEEL_HOST_DEVICE void improve(int move) {
    const int slot = moves_.slot[move];
    const int to = moves_.to[move];
    const std::int32_t amount = moves_.amount[move];
    const int begin = homes_.slot_begin[homes_.slot_rank[slot]];
    const int end = homes_.slot_begin[homes_.slot_rank[slot] + 1];
    const int best = lanes_.best(end - begin, [&](int i) {
      const int s = begin + i;
      if (s == slot || rest_[s] < amount || amount < least(s)) return kNoKey;
      const std::int32_t gain = moving_gains(s, to, amount, -1) + moving_gains(slot, to, amount, 1);
      return gain > 0 && !is_on(s, to) ? -gain : kNoKey;
    });
    if (best < 0) return;
    lanes_.once([&] {
      rest_[slot] += amount;
      rest_[begin + best] -= amount;
      moves_.slot[move] = begin + best;
    });
  }

  EVENKEEL_HOST_DEVICE std::int32_t least(int slot) const {
    const std::int32_t all = load_[homes_.slot_expert[slot]];
    return all < min_segment_ ? all : min_segment_;
  }
  // Rows of the expert that stay on a rank which computes `count` of its assignments.
  EVENKEEL_HOST_DEVICE std::int32_t kept(int slot, int rank, std::int32_t count) const {
    const std::int32_t own = counts_[rank * homes_.num_experts + homes_.slot_expert[slot]];
    return count < own ? count : own;
  }
  EVENKEEL_HOST_DEVICE std::int32_t moving_gains(int slot, int to, std::int32_t amount,
                                                 std::int32_t direction) const {
    const int home = homes_.slot_rank[slot];
    return kept(slot, home, rest_[slot] + direction * amount) - kept(slot, home, rest_[slot]) -
           direction * kept(slot, to, amount);
  }
  EVENKEEL_HOST_DEVICE bool is_on(int slot, int rank) const {
    const int expert = homes_.slot_expert[slot];
    for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i)
      if (homes_.slot_rank[homes_.copies[i]] == rank) return true;
    for (int i = 0; i < moves_.count; ++i)
      if (moves_.to[i] == rank && homes_.slot_expert[moves_.slot[i]] == expert) return true;
    return false;
  }

  const Lanes& lanes_;
  const PlacementView& homes_;
  const std::int32_t* counts_;
  const std::int32_t* load_;
  std::int32_t min_segment_;
  std::int32_t* rest_;
  MoveList& moves_;
};

}  // namespace evenkeel::cuda
