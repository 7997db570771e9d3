// State of a matching (balance/internal/match_state.h) on lanes: the balances that ranks still have to
// settle, the assignments left on slots, and the flow that changes both.
//
// Method  A rank whose balance is 0 takes no further part, so that no list of open ranks is needed. A scan
//         within a scan runs on one lane.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_buffers.h"

namespace evenkeel::cuda {

template <class Lanes>
class MatchState {
 public:
  // Moves `amount` of a slot's share to a rank, which changes the balances of that rank and of the sender.
  // Empty if it has no slot.
  struct Flow {
    int slot = -1;
    int to = -1;
    std::int32_t amount = 0;
    EVENKEEL_HOST_DEVICE explicit operator bool() const { return slot >= 0; }
  };
  // An amount to move from rank to rank. Empty if it has no sender.
  struct Pair {
    int from = -1;
    int to = -1;
    std::int32_t amount = 0;
    EVENKEEL_HOST_DEVICE explicit operator bool() const { return from >= 0; }
  };

  // The caller fills buffers.committed with the balances (above 0 an excess, below 0 spare capacity), and
  // buffers.rest with the part of each slot's share that has not moved.
  EVENKEEL_HOST_DEVICE MatchState(const Lanes& searching, PlannerBuffers& buffers, std::int32_t min_segment)
      : lanes(searching),
        homes(buffers.homes),
        balance(buffers.committed),
        rest(buffers.rest),
        least(buffers.least),
        marks(buffers.queue),
        moves(buffers.moves),
        small(min_segment > 1 ? min_segment : 1) {}

  EVENKEEL_HOST_DEVICE int ranks() const { return homes.num_ranks; }
  EVENKEEL_HOST_DEVICE std::int32_t excess(int r) const { return balance[r]; }
  EVENKEEL_HOST_DEVICE std::int32_t spare(int r) const { return -balance[r]; }
  EVENKEEL_HOST_DEVICE static std::int32_t lesser(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
  EVENKEEL_HOST_DEVICE bool is_small(std::int32_t amount) const {
    return amount != 0 && amount < small && amount > -small;
  }

  EVENKEEL_HOST_DEVICE bool gives(int slot, std::int32_t amount) const {
    const std::int32_t left = rest[slot], fewest = least[slot];  // both loads in flight at once
    return left >= amount && amount >= fewest;
  }
  // Runs on one lane.
  EVENKEEL_HOST_DEVICE bool has_slot(int from, std::int32_t amount, int except = -1) const {
    return any_slot(from, [&](int s) { return s != except && gives(s, amount); });
  }
  // Runs on one lane. Never stops early, so that all loads of the predicate are in flight at once.
  template <class Predicate>
  EVENKEEL_HOST_DEVICE bool any_slot(int rank, const Predicate& holds) const {
    const int end = homes.slot_begin[rank + 1];
    bool any = false;
    EVENKEEL_UNROLL_BY(4)
    for (int s = homes.slot_begin[rank]; s < end; ++s) any |= holds(s);
    return any;
  }
  // The first of a rank's slots with the smallest key; -1 for none.
  template <class Key>
  EVENKEEL_HOST_DEVICE int best_slot(int from, const Key& key) const {
    const int begin = homes.slot_begin[from];
    const int at = lanes.best(homes.slot_begin[from + 1] - begin, [&](int i) { return key(begin + i); }).at;
    return at < 0 ? -1 : begin + at;
  }
  // The slot of a rank that can give `amount` and has the least left; -1 for none.
  EVENKEEL_HOST_DEVICE int slot_for(int from, std::int32_t amount, int except = -1) const {
    return best_slot(from, [&](int s) {
      const std::int32_t left = rest[s], fewest = least[s];
      return left >= amount && amount >= fewest && s != except ? left : kNoKey;
    });
  }
  EVENKEEL_HOST_DEVICE Flow by_one_slot(const Pair& pair) const {
    return {slot_for(pair.from, pair.amount), pair.to, pair.amount};
  }

  EVENKEEL_HOST_DEVICE void carry_out(const Flow& flow) {
    const int slot = flow.slot, to = flow.to;
    const std::int32_t amount = flow.amount;
    const int from = homes.slot_rank[slot];
    const std::int32_t left_from = balance[from] - amount, left_to = balance[to] + amount;
    const int same = may_repeat ? move_of(slot, to) : -1;
    may_repeat = may_repeat || (left_from != 0 && left_to != 0);
    const auto settle = [&] {
      rest[slot] -= amount;
      balance[from] = left_from;
      balance[to] = left_to;
    };
    if (same < 0) return moves.add(lanes, slot, to, amount, settle);
    const std::int32_t total = moves.amount[same] + amount;
    lanes.once([&] {
      settle();
      moves.amount[same] = total;
    });
    if (total == 0) moves.erase(lanes, same);
  }

  const Lanes& lanes;
  const Homes& homes;
  const Array balance;
  const Array rest;
  const Array least;
  const Array marks;
  MoveList& moves;
  // Amounts below this are small. At least 1.
  const std::int32_t small;
  // Once a flow makes a balance 0, nothing more flows between its two ranks until the repair. So a flow looks
  // for an earlier move of the same slot and rank only after some flow has left both balances other than 0.
  bool may_repeat = false;

 private:
  EVENKEEL_HOST_DEVICE int move_of(int slot, int to) const {
    return lanes.first(0, moves.count, [&](int i) { return moves.slot[i] == slot && moves.to[i] == to; });
  }
};

}  // namespace evenkeel::cuda
