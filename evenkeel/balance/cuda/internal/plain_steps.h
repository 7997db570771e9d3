// The plain steps of a matching. While no balance is small and a single slot can close a balance, the largest
// excess goes to the largest spare capacity from the tightest slot. Usually all steps are plain.
//
// Method  A lane keeps the balances of its ranks in registers. Slots are divided over lanes by their position
//         within their rank. What is left on a slot is read and written only by the slot's lane. Lanes wait
//         for one another only in reductions, and publish their balances once, at the end.
// Cost    Two reductions, two votes and two reads of shared memory a step, one after the other.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/match_state.h"

namespace evenkeel::cuda {

template <class Lanes>
class PlainSteps {
 public:
  EVENKEEL_HOST_DEVICE explicit PlainSteps(MatchState<Lanes>& state) : all_(state) {}

  // Takes all plain steps there are. True if no rank has a positive balance afterwards.
  EVENKEEL_HOST_DEVICE bool take() {
    // Each plain step closes a balance, so that none repeats another.
    if (all_.may_repeat || all_.ranks() > kMostRanks) return false;
    for_own([&](int i, int r) { balance_[i] = r < all_.ranks() ? all_.balance[r] : 0; });
    const bool settled = take_in_registers();
    for_own([&](int i, int r) {
      if (r < all_.ranks()) all_.balance[r] = balance_[i];
    });
    all_.lanes.sync();
    return settled;
  }

 private:
  static constexpr int kMostRanks = 64;
  static constexpr int kOwn = kMostRanks / kLeastLanes<Lanes>;

  // Calls f(i, rank) for each of the lane's own ranks.
  template <class F>
  EVENKEEL_HOST_DEVICE void for_own(const F& f) const {
    EVENKEEL_UNROLL_BY(2)
    for (int i = 0; i < kOwn; ++i) f(i, i * all_.lanes.size() + all_.lanes.rank());
  }

  EVENKEEL_HOST_DEVICE bool take_in_registers() {
    EVENKEEL_NO_UNROLL
    while (true) {
      std::int32_t own_most = balance_[0], own_least = balance_[0];
      bool sees_small = false;
      for_own([&](int i, int) {
        const std::int32_t balance = balance_[i];
        own_most = balance > own_most ? balance : own_most;
        own_least = all_.lesser(balance, own_least);
        sees_small = sees_small || all_.is_small(balance);
      });
      const std::int32_t most = all_.lanes.max_of(own_most), least = all_.lanes.min_of(own_least);
      // All votes are issued before the first result is used.
      const int from = first_with(most), to = first_with(least), small = all_.lanes.first_lane(sees_small);
      if (most <= 0) return true;
      const std::int32_t amount = all_.lesser(most, -least);
      if (small >= 0 || amount < all_.small) return false;
      if (!move(from, to, amount)) return false;
      for_own([&](int i, int r) {
        if (r == from) balance_[i] = most - amount;
        if (r == to) balance_[i] = least + amount;
      });
    }
  }

  // The first rank with this balance; there must be one.
  EVENKEEL_HOST_DEVICE int first_with(std::int32_t balance) const {
    int first = 0;
    EVENKEEL_UNROLL_BY(2)
    for (int i = kOwn - 1; i >= 0; --i) {
      const int lane = all_.lanes.first_lane(balance_[i] == balance);
      first = lane < 0 ? first : i * all_.lanes.size() + lane;
    }
    return first;
  }

  // Moves from the first of the tightest slots, on that slot's lane; false if no slot can give `amount`.
  EVENKEEL_HOST_DEVICE bool move(int from, int to, std::int32_t amount) {
    const int begin = all_.homes.slot_begin[from], end = all_.homes.slot_begin[from + 1];
    int slot = kNoKey;
    std::int32_t left = kNoKey;
    EVENKEEL_NO_UNROLL
    for (int s = begin + all_.lanes.rank(); s < end; s += all_.lanes.size())
      if (all_.gives(s, amount) && all_.rest[s] < left) slot = s, left = all_.rest[s];
    const std::int32_t tightest = all_.lanes.min_of(left);
    if (tightest == kNoKey) return false;
    const bool is_first =
        end - begin <= all_.lanes.size()
            ? all_.lanes.first_lane(left == tightest) == all_.lanes.rank()
            : all_.lanes.min_of(left == tightest ? slot : kNoKey) == slot && left == tightest;
    MoveList& moves = all_.moves;
    EVENKEEL_DEVICE_CHECK(moves.count < moves.capacity);
    if (is_first) {
      all_.rest[slot] = left - amount;
      moves.set(moves.count, slot, to, amount);
    }
    ++moves.count;
    return true;
  }

  MatchState<Lanes>& all_;
  std::int32_t balance_[kOwn] = {};
};

}  // namespace evenkeel::cuda
