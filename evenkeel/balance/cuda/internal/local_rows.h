// Chooses which expert of a rank a move takes (balance/internal/local_rows.h), on lanes.
//
// Method  If experts have one home each, moves of different senders do not affect each other. So each warp
//         takes one sender and does not look at the moves of other senders, whose slots may be changing. Each
//         lane checks for one move whether another slot gives enough. For a move that has such slots, all
//         lanes compare them.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_buffers.h"

namespace evenkeel::cuda {

template <class Lanes>
class LocalRows {
 public:
  // `counts` is [P][E]; buffers.rest is what the moves in buffers.best leave on each slot. `senders` are the
  // senders of these moves. Takes only the moves of the sender `own`, or all moves if `own` is -1.
  EVENKEEL_HOST_DEVICE LocalRows(const Lanes& lanes, PlannerBuffers& buffers, const std::int32_t* counts,
                                 const Array& senders, int own)
      : lanes_(lanes),
        buffers_(buffers),
        homes_(buffers.homes),
        moves_(buffers.best),
        counts_(counts),
        senders_(senders),
        own_(own) {}

  // Improves the moves in their order.
  EVENKEEL_HOST_DEVICE void improve() {
    EVENKEEL_NO_UNROLL
    for (int begin = 0; begin < moves_.count; begin += lanes_.size()) {
      const int own = begin + lanes_.rank();
      const bool included = own < moves_.count && is_taken(own);
      bool has_changed = true, waits = false;
      for (int at = -1;; has_changed = improve_one(begin + at)) {
        if (has_changed) waits = included && has_other(own);
        if ((at = lanes_.first_lane(waits && lanes_.rank() > at)) < 0) break;
      }
    }
  }

 private:
  EVENKEEL_HOST_DEVICE bool is_taken(int move) const { return own_ < 0 || senders_[move] == own_; }

  // Whether the slot could give the amount instead of `given_by`.
  EVENKEEL_HOST_DEVICE bool could_give(int slot, int given_by, std::int32_t amount) const {
    const std::int32_t rest = buffers_.rest[slot],
                       fewest = buffers_.least[slot];  // both loads in flight at once
    return slot != given_by && rest >= amount && amount >= fewest;
  }
  // Runs on one lane.
  EVENKEEL_HOST_DEVICE bool has_other(int move) const {
    const int slot = moves_.slot[move], home = homes_.slot_rank[slot];
    const std::int32_t amount = moves_.amount[move];
    const int end = homes_.slot_begin[home + 1];
    bool has = false;
    EVENKEEL_UNROLL_BY(4)
    for (int s = homes_.slot_begin[home]; s < end; ++s) has |= could_give(s, slot, amount);
    return has;
  }

  // Runs on all lanes; false if no slot is better.
  EVENKEEL_HOST_DEVICE bool improve_one(int move) {
    const int slot = moves_.slot[move], to = moves_.to[move];
    const std::int32_t amount = moves_.amount[move];
    const int better = better_slot(slot, to, amount);
    if (better < 0) return false;
    lanes_.once([&] {
      buffers_.rest[slot] += amount;
      buffers_.rest[better] -= amount;
      moves_.slot[move] = better;
    });
    return true;
  }

  // The first of the slots that gain most and whose expert is not on the rank already; -1 if none gains
  // anything.
  EVENKEEL_HOST_DEVICE int better_slot(int slot, int to, std::int32_t amount) const {
    const int home = homes_.slot_rank[slot], begin = homes_.slot_begin[home];
    const int slots = homes_.slot_begin[home + 1] - begin;
    const std::int32_t gain_of_return = moving_gains(slot, home, to, amount, 1);
    typename Lanes::Found last{-1, -kNoKey};
    while (true) {
      const auto found = lanes_.best(slots, [&](int i) {
        if (!could_give(begin + i, slot, amount)) return kNoKey;
        const std::int32_t key = -(moving_gains(begin + i, home, to, amount, -1) + gain_of_return);
        return key < 0 && (key > last.key || (key == last.key && i > last.at)) ? key : kNoKey;
      });
      if (found.at < 0) return -1;
      if (!is_on(begin + found.at, to)) return begin + found.at;
      last = found;
    }
  }

  // Rows of the expert that stay on a rank which computes `count` of its assignments.
  EVENKEEL_HOST_DEVICE std::int32_t kept(int slot, int rank, std::int32_t count) const {
    const std::int32_t own = counts_[rank * homes_.num_experts + homes_.slot_expert[slot]];
    return count < own ? count : own;
  }
  EVENKEEL_HOST_DEVICE std::int32_t moving_gains(int slot, int home, int to, std::int32_t amount,
                                                 std::int32_t direction) const {
    return kept(slot, home, buffers_.rest[slot] + direction * amount) -
           kept(slot, home, buffers_.rest[slot]) - direction * kept(slot, to, amount);
  }
  // Moves of other senders need no check: an expert with one home moves from that home only.
  EVENKEEL_HOST_DEVICE bool is_on(int slot, int rank) const {
    const int expert = homes_.slot_expert[slot];
    for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i)
      if (homes_.slot_rank[homes_.copies[i]] == rank) return true;
    const int move = lanes_.first(0, moves_.count, [&](int i) {
      return is_taken(i) && moves_.to[i] == rank && homes_.slot_expert[moves_.slot[i]] == expert;
    });
    return move >= 0;
  }

  const Lanes& lanes_;
  const PlannerBuffers& buffers_;
  const Homes& homes_;
  const MoveList& moves_;
  const std::int32_t* counts_;
  const Array senders_;
  const int own_;
};

}  // namespace evenkeel::cuda
