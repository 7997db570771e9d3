// Settlement (balance/settlement.h) on lanes: the same moves in the same order.
//
// Method  Each scan over ranks, slots or moves is one best() or first() over lanes; a scan within a
//         scan runs on its lane alone. Ranks with open accounts are flagged, not listed: the list is
//         always ascending.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/lanes.h"
#include "evenkeel/balance/cuda/internal/moves.h"

namespace evenkeel::cuda {

template <class Lanes>
class Settlement {
 public:
  struct Room {
    std::int32_t* balance;  // [P], above 0 an excess, below it room; the caller's to fill
    std::int32_t* rest;     // [S], what of a slot's share has not moved; the caller's to fill
    std::int32_t* open;     // [P]
  };

  // `share` and `load` are those of slots and experts; `min_segment` is as the planner was given it.
  EVENKEEL_HOST_DEVICE Settlement(const Lanes& lanes, const PlacementView& homes, const std::int32_t* load,
                                  Room room, MoveList& moves, std::int32_t min_segment)
      : lanes_(lanes),
        homes_(homes),
        load_(load),
        balance_(room.balance),
        rest_(room.rest),
        open_(room.open),
        moves_(moves),
        least_(min_segment),
        small_(min_segment > 1 ? min_segment : 1) {}

  // Moves pieces until no rank has a positive balance; false where it got stuck.
  EVENKEEL_HOST_DEVICE bool settle() {
    lanes_.for_each(ranks(), [&](int r) { open_[r] = 1; });
    drop_settled();
    settle_equal_pairs();
    while (true) {
      drop_settled();
      if (lanes_.first(0, ranks(), [&](int r) { return open_[r] != 0 && balance_[r] > 0; }) < 0) return true;
      if (!step()) return mend();
    }
  }

 private:
  EVENKEEL_HOST_DEVICE int ranks() const { return homes_.num_ranks; }
  EVENKEEL_HOST_DEVICE std::int32_t excess(int r) const { return balance_[r]; }
  EVENKEEL_HOST_DEVICE std::int32_t room(int r) const { return -balance_[r]; }
  EVENKEEL_HOST_DEVICE static std::int32_t lesser(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
  EVENKEEL_HOST_DEVICE bool is_small(std::int32_t amount) const {
    return amount != 0 && amount < small_ && amount > -small_;
  }
  // The fewest that may leave a slot for a rank without a copy.
  EVENKEEL_HOST_DEVICE std::int32_t least(int slot) const {
    return lesser(load_[homes_.slot_expert[slot]], least_);
  }

  EVENKEEL_HOST_DEVICE void drop_settled() {
    lanes_.for_each(ranks(), [&](int r) {
      if (balance_[r] == 0) open_[r] = 0;
    });
  }

  // Of the open ranks, the first with the smallest key.
  template <class Key>
  EVENKEEL_HOST_DEVICE int best_open(const Key& key) const {
    return lanes_.best(ranks(), [&](int r) { return open_[r] != 0 ? key(r) : kNoKey; });
  }

  EVENKEEL_HOST_DEVICE bool gives(int slot, std::int32_t amount) const {
    return rest_[slot] >= amount && amount >= least(slot);
  }
  // On one lane.
  EVENKEEL_HOST_DEVICE bool has_slot(int from, std::int32_t amount, int except = -1) const {
    for (int s = homes_.slot_begin[from]; s < homes_.slot_begin[from + 1]; ++s)
      if (s != except && gives(s, amount)) return true;
    return false;
  }
  // The tightest slot of a rank that gives so many; -1 for none.
  EVENKEEL_HOST_DEVICE int slot_for(int from, std::int32_t amount, int except = -1) const {
    const int begin = homes_.slot_begin[from];
    const int at = lanes_.best(homes_.slot_begin[from + 1] - begin, [&](int i) {
      return begin + i != except && gives(begin + i, amount) ? rest_[begin + i] : kNoKey;
    });
    return at < 0 ? -1 : begin + at;
  }
  // On one lane.
  EVENKEEL_HOST_DEVICE bool sends_to(int from, int to) const {
    for (int i = 0; i < moves_.count; ++i)
      if (moves_.to[i] == to && homes_.slot_rank[moves_.slot[i]] == from) return true;
    return false;
  }

  EVENKEEL_HOST_DEVICE bool try_flow(int from, int to, std::int32_t amount) {
    const int slot = slot_for(from, amount);
    if (slot < 0) return false;
    flow(slot, to, amount);
    return true;
  }

  EVENKEEL_HOST_DEVICE void flow(int slot, int to, std::int32_t amount) {
    const int same =
        lanes_.first(0, moves_.count, [&](int i) { return moves_.slot[i] == slot && moves_.to[i] == to; });
    lanes_.once([&] {
      rest_[slot] -= amount;
      balance_[homes_.slot_rank[slot]] -= amount;
      balance_[to] += amount;
      if (same >= 0) moves_.amount[same] += amount;
    });
    if (same < 0)
      moves_.add(lanes_, slot, to, amount);
    else if (moves_.amount[same] == 0)
      moves_.erase(lanes_, same);
  }

  EVENKEEL_HOST_DEVICE bool step() {
    if (small_ > 1 && absorb_small()) return true;
    const int from = best_open([&](int r) { return -balance_[r]; });
    const int to = best_open([&](int r) { return balance_[r]; });
    const std::int32_t amount = lesser(excess(from), room(to));
    if (amount <= 0) return false;
    if (amount >= small_ && try_flow(from, to, amount)) return true;
    return close_receiver(from) || close_sender(to) || split(from, to) || overshoot(from, to);
  }

  EVENKEEL_HOST_DEVICE void settle_equal_pairs() {
    std::int64_t slack = lanes_.sum(ranks(), [&](int r) { return open_[r] != 0 ? room(r) : 0; });
    for (int from = 0; from < ranks(); ++from) {
      if (open_[from] == 0 || excess(from) < small_) continue;
      const int to = best_open([&](int r) {
        const std::int32_t left = room(r) - excess(from);
        return room(r) > 0 && left >= 0 && left <= slack ? room(r) : kNoKey;
      });
      if (to < 0) continue;
      const std::int32_t left = room(to) - excess(from);
      if (try_flow(from, to, excess(from))) slack -= left;
    }
  }

  EVENKEEL_HOST_DEVICE bool absorb_small() {
    for (int r = 0; r < ranks(); ++r)
      if (open_[r] != 0 && is_small(balance_[r]) && absorb_into(r)) return true;
    return false;
  }

  EVENKEEL_HOST_DEVICE bool absorb_into(int small) {
    const int best = best_open([&](int r) {
      const std::int32_t after = balance_[r] + balance_[small];
      const std::int32_t size = balance_[r] < 0 ? -balance_[r] : balance_[r];
      if (r == small || size < small_ || is_small(after)) return kNoKey;
      const bool can = excess(r) > 0 ? has_slot(r, size) && has_slot(small, after) : has_slot(small, size);
      return can ? size : kNoKey;
    });
    if (best < 0) return false;
    return excess(best) > 0 ? try_flow(best, small, excess(best)) : try_flow(small, best, room(best));
  }

  EVENKEEL_HOST_DEVICE bool close_receiver(int from) {
    const int to = best_open([&](int r) {
      const bool can = room(r) >= small_ && room(r) <= excess(from) && has_slot(from, room(r));
      return can ? -room(r) : kNoKey;
    });
    return to >= 0 && try_flow(from, to, room(to));
  }

  EVENKEEL_HOST_DEVICE bool close_sender(int to) {
    const int from = best_open([&](int r) {
      const bool can = excess(r) >= small_ && excess(r) <= room(to) && has_slot(r, excess(r));
      return can ? -excess(r) : kNoKey;
    });
    return from >= 0 && try_flow(from, to, excess(from));
  }

  // What a slot gives when `wanted` is split; what stays to be moved is large enough to be moved.
  EVENKEEL_HOST_DEVICE std::int32_t piece_of(int slot, std::int32_t wanted) const {
    const std::int32_t piece = lesser(rest_[slot], wanted);
    return is_small(wanted - piece) ? wanted - small_ : piece;
  }

  // `to` has the most room of all, so that another is taken only where `from` sends to it already.
  EVENKEEL_HOST_DEVICE bool split(int from, int to) {
    const std::int32_t wanted = lesser(excess(from), room(to));
    const int begin = homes_.slot_begin[from];
    const int at = lanes_.best(homes_.slot_begin[from + 1] - begin, [&](int i) {
      const std::int32_t piece = piece_of(begin + i, wanted);
      return piece >= least(begin + i) && piece > 0 ? -piece : kNoKey;
    });
    if (at < 0) return false;
    const int slot = begin + at;
    const std::int32_t amount = piece_of(slot, wanted);
    int target = to;
    if (sends_to(from, to)) {
      const int other = best_open([&](int r) {
        return room(r) >= amount && !is_small(room(r) - amount) && !sends_to(from, r) ? -room(r) : kNoKey;
      });
      if (other >= 0) target = other;
    }
    flow(slot, target, amount);
    return true;
  }

  EVENKEEL_HOST_DEVICE bool overshoot(int from, int to) {
    const int begin = homes_.slot_begin[from];
    const auto piece = [&](int slot) { return excess(from) > least(slot) ? excess(from) : least(slot); };
    const int at = lanes_.best(homes_.slot_begin[from + 1] - begin, [&](int i) {
      const std::int32_t p = piece(begin + i);
      return p <= rest_[begin + i] && p <= room(to) ? p : kNoKey;
    });
    if (at >= 0) flow(begin + at, to, piece(begin + at));
    return at >= 0;
  }

  EVENKEEL_HOST_DEVICE bool mend() {
    for (int from = 0; from < ranks(); ++from) {
      if (open_[from] == 0) continue;
      while (excess(from) > 0)
        if (!mend_once(from)) return false;
    }
    return true;
  }

  EVENKEEL_HOST_DEVICE bool mend_once(int from) {
    for (int to = 0; to < ranks(); ++to)
      if (open_[to] != 0 && room(to) > 0 && (lengthen(from, to) || detour(from, to))) return true;
    for (int to = 0; to < ranks(); ++to)
      if (open_[to] != 0 && room(to) > 0 && swap(from, to)) return true;
    return false;
  }

  EVENKEEL_HOST_DEVICE bool lengthen(int from, int to) {
    const std::int32_t amount = lesser(excess(from), room(to));
    const auto sender = [&](int i) { return homes_.slot_rank[moves_.slot[i]]; };
    const int i = lanes_.first(0, moves_.count, [&](int m) {
      const int slot = moves_.slot[m];
      return (sender(m) == from && moves_.to[m] == to && rest_[slot] >= amount) ||
             (sender(m) == to && moves_.to[m] == from && moves_.amount[m] - amount >= least(slot));
    });
    if (i >= 0) {
      const bool forth = sender(i) == from;
      flow(moves_.slot[i], forth ? to : from, forth ? amount : -amount);
      return true;
    }
    const std::int32_t back = small_ - amount;
    if (back <= 0) return false;
    const int j = lanes_.first(0, moves_.count, [&](int m) {
      const int slot = moves_.slot[m];
      return sender(m) == from && moves_.to[m] == to && moves_.amount[m] - back >= least(slot) &&
             has_slot(from, small_, slot);
    });
    if (j < 0) return false;
    const int slot = moves_.slot[j];
    const int other = slot_for(from, small_, slot);
    flow(slot, to, -back);
    flow(other, to, small_);
    return true;
  }

  // A transfer led through another rank, when `amount` more leaves `from` for `to`.
  struct Detour {
    int through;
    std::int32_t in, out;
  };
  EVENKEEL_HOST_DEVICE Detour detour_of(int m, int from, int to, std::int32_t amount) const {
    const int sender = homes_.slot_rank[moves_.slot[m]];
    const bool at_to = sender == to || moves_.to[m] == to;
    const std::int32_t size = moves_.amount[m];
    return {at_to ? from : to,
            size + (sender == to     ? -amount
                    : sender == from ? amount
                                     : 0),
            size + (moves_.to[m] == to     ? amount
                    : moves_.to[m] == from ? -amount
                                           : 0)};
  }
  EVENKEEL_HOST_DEVICE bool can_detour(int m, int from, int to, std::int32_t amount) const {
    const int slot = moves_.slot[m];
    const int sender = homes_.slot_rank[slot];
    const bool at_to = sender == to || moves_.to[m] == to;
    const bool at_from = sender == from || moves_.to[m] == from;
    if (at_to == at_from) return false;
    const Detour way = detour_of(m, from, to, amount);
    return way.in >= least(slot) && way.in - moves_.amount[m] <= rest_[slot] &&
           has_slot(way.through, way.out);
  }

  EVENKEEL_HOST_DEVICE bool detour(int from, int to) {
    const std::int32_t amount = lesser(excess(from), room(to));
    const int m = lanes_.best(
        moves_.count, [&](int i) { return can_detour(i, from, to, amount) ? moves_.amount[i] : kNoKey; });
    if (m < 0) return false;
    const Detour way = detour_of(m, from, to, amount);
    const int slot = moves_.slot[m];
    const int end = moves_.to[m];
    flow(slot, end, -moves_.amount[m]);
    flow(slot, way.through, way.in);
    flow(slot_for(way.through, way.out), end, way.out);
    return true;
  }

  EVENKEEL_HOST_DEVICE bool swap(int from, int to) {
    const std::int32_t amount = lesser(excess(from), room(to));
    const int begin = homes_.slot_begin[to];
    const int i = lanes_.first(0, homes_.slot_begin[to + 1] - begin, [&](int s) {
      const std::int32_t back = least(begin + s);
      return back > 0 && rest_[begin + s] >= back && has_slot(from, back + amount);
    });
    if (i < 0) return false;
    const std::int32_t back = least(begin + i);
    flow(slot_for(from, back + amount), to, back + amount);
    flow(begin + i, from, back);
    return true;
  }

  const Lanes& lanes_;
  const PlacementView& homes_;
  const std::int32_t* load_;
  std::int32_t* balance_;
  std::int32_t* rest_;
  std::int32_t* open_;
  MoveList& moves_;
  std::int32_t least_;
  std::int32_t small_;
};

}  // namespace evenkeel::cuda
