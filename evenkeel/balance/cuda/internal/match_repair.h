// Repair of a matching (balance/internal/excess_matcher.h) on lanes: settles differences that are too small
// for a piece of their own. A repair changes the amount of an existing transfer, routes a transfer through
// another rank, or swaps pieces.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/match_state.h"

namespace evenkeel::cuda {

template <class Lanes>
class MatchRepair {
 public:
  EVENKEEL_HOST_DEVICE explicit MatchRepair(MatchState<Lanes>& state) : all_(state), moves_(state.moves) {}

  // False where some excess stays.
  EVENKEEL_HOST_DEVICE bool repair() {
    all_.may_repeat = true;
    int from = -1;
    while ((from = next(from, [&](int r) { return all_.excess(r) > 0; })) >= 0)
      while (all_.excess(from) > 0) {
        const Remedy remedy = remedy_of(from);
        if (!remedy.first) return false;
        carry_out(remedy);
      }
    return true;
  }

 private:
  using Flow = typename MatchState<Lanes>::Flow;

  // Up to three flows, in their order.
  struct Remedy {
    Flow first{}, second{}, third{};
    EVENKEEL_HOST_DEVICE explicit operator bool() const { return static_cast<bool>(first); }
  };
  EVENKEEL_HOST_DEVICE void carry_out(const Remedy& remedy) {
    all_.carry_out(remedy.first);
    if (remedy.second) all_.carry_out(remedy.second);
    if (remedy.third) all_.carry_out(remedy.third);
  }

  template <class Predicate>
  EVENKEEL_HOST_DEVICE int next(int rank, const Predicate& holds) const {
    return all_.lanes.first(rank + 1, all_.ranks(), holds);
  }
  EVENKEEL_HOST_DEVICE Remedy remedy_of(int from) const {
    const auto has_spare = [&](int r) { return all_.spare(r) > 0; };
    for (int to = -1; (to = next(to, has_spare)) >= 0;) {
      const std::int32_t amount = all_.lesser(all_.excess(from), all_.spare(to));
      if (const Remedy longer = lengthen(from, to, amount)) return longer;
      if (const Remedy detour = detour_by(from, to, amount)) return detour;
    }
    for (int to = -1; (to = next(to, has_spare)) >= 0;)
      if (const Remedy both = swap(from, to, all_.lesser(all_.excess(from), all_.spare(to)))) return both;
    return {};
  }

  EVENKEEL_HOST_DEVICE int sender(int move) const { return all_.homes.slot_rank[moves_.slot[move]]; }

  EVENKEEL_HOST_DEVICE Remedy lengthen(int from, int to, std::int32_t amount) const {
    const int i = all_.lanes.first(0, moves_.count, [&](int m) {
      const int slot = moves_.slot[m];
      return (sender(m) == from && moves_.to[m] == to && all_.rest[slot] >= amount) ||
             (sender(m) == to && moves_.to[m] == from && moves_.amount[m] - amount >= all_.least[slot]);
    });
    if (i < 0) return lengthen_beside(from, to, all_.small - amount);
    const bool forth = sender(i) == from;
    return {Flow{moves_.slot[i], forth ? to : from, forth ? amount : -amount}};
  }
  EVENKEEL_HOST_DEVICE Remedy lengthen_beside(int from, int to, std::int32_t back) const {
    if (back <= 0) return {};
    const int i = all_.lanes.first(0, moves_.count, [&](int m) {
      const int slot = moves_.slot[m];
      return sender(m) == from && moves_.to[m] == to && moves_.amount[m] - back >= all_.least[slot] &&
             all_.has_slot(from, all_.small, slot);
    });
    if (i < 0) return {};
    const int slot = moves_.slot[i];
    return {Flow{slot, to, -back}, Flow{all_.slot_for(from, all_.small, slot), to, all_.small}};
  }

  // A transfer routed through another rank, so that `amount` more goes from `from` to `to`.
  struct Detour {
    int through;
    std::int32_t in, out;
  };
  EVENKEEL_HOST_DEVICE Detour detour_of(int m, int from, int to, std::int32_t amount) const {
    const int its = sender(m), end = moves_.to[m];
    const std::int32_t size = moves_.amount[m];
    return {its == to || end == to ? from : to,
            size + (its == to     ? -amount
                    : its == from ? amount
                                  : 0),
            size + (end == to     ? amount
                    : end == from ? -amount
                                  : 0)};
  }
  EVENKEEL_HOST_DEVICE bool can_detour(int m, int from, int to, std::int32_t amount) const {
    const int slot = moves_.slot[m];
    const bool at_to = sender(m) == to || moves_.to[m] == to;
    const bool at_from = sender(m) == from || moves_.to[m] == from;
    if (at_to == at_from) return false;
    const Detour way = detour_of(m, from, to, amount);
    return way.in >= all_.least[slot] && way.in - moves_.amount[m] <= all_.rest[slot] &&
           all_.has_slot(way.through, way.out);
  }
  // The rank in between is not the sender, so that its slots are the same before and after the first two
  // flows.
  EVENKEEL_HOST_DEVICE Remedy detour_by(int from, int to, std::int32_t amount) const {
    const int m =
        all_.lanes
            .best(moves_.count,
                  [&](int i) { return can_detour(i, from, to, amount) ? moves_.amount[i] : kNoKey; })
            .at;
    if (m < 0) return {};
    const Detour way = detour_of(m, from, to, amount);
    const int slot = moves_.slot[m], end = moves_.to[m];
    return {Flow{slot, end, -moves_.amount[m]}, Flow{slot, way.through, way.in},
            Flow{all_.slot_for(way.through, way.out), end, way.out}};
  }

  EVENKEEL_HOST_DEVICE Remedy swap(int from, int to, std::int32_t amount) const {
    const int begin = all_.homes.slot_begin[to];
    const int i = all_.lanes.first(0, all_.homes.slot_begin[to + 1] - begin, [&](int s) {
      const std::int32_t back = all_.least[begin + s];
      return back > 0 && all_.rest[begin + s] >= back && all_.has_slot(from, back + amount);
    });
    if (i < 0) return {};
    const std::int32_t back = all_.least[begin + i];
    return {Flow{all_.slot_for(from, back + amount), to, back + amount}, Flow{begin + i, from, back}};
  }

  MatchState<Lanes>& all_;
  const MoveList& moves_;
};

}  // namespace evenkeel::cuda
