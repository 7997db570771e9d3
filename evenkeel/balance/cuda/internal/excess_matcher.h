// ExcessMatcher (balance/internal/excess_matcher.h) on lanes: the same moves in the same order.
//
// Method  Plain steps (plain_steps.h) are taken in registers. For any other step, each scan over ranks, slots
//         or moves is one search over lanes. A step is first found and then carried out in one place, so that
//         the loop is small.
// Cost    A step that is not plain takes about twenty accesses of shared memory one after the other, for any
//         P up to 64.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/match_repair.h"
#include "evenkeel/balance/cuda/internal/match_state.h"
#include "evenkeel/balance/cuda/internal/plain_steps.h"

namespace evenkeel::cuda {

template <class Lanes>
class ExcessMatcher {
 public:
  EVENKEEL_HOST_DEVICE explicit ExcessMatcher(MatchState<Lanes>& state) : all_(state) {}

  // Moves pieces until no rank has a positive balance; false where it got stuck. `spare` is the sum of all
  // spare capacity, less the sum of all excess.
  EVENKEEL_HOST_DEVICE bool settle(std::int64_t spare) {
    settle_equal_pairs(spare);
    while (true) {
      if (PlainSteps<Lanes>(all_).take()) return true;
      const Survey survey = look();
      if (survey.most.key <= 0) return true;
      const Flow next = step(survey);
      if (!next) return MatchRepair<Lanes>(all_).repair();
      all_.carry_out(next);
    }
  }

 private:
  using Flow = typename MatchState<Lanes>::Flow;
  using Pair = typename MatchState<Lanes>::Pair;
  using Found = typename Lanes::Found;

  // The balances' extremes, and whether any is small.
  struct Survey {
    Found least, most;
    bool has_small;
  };
  EVENKEEL_HOST_DEVICE Survey look() const {
    Survey survey{};
    bool sees_small = false;
    all_.lanes.extremes(
        all_.ranks(),
        [&](int r) {
          const std::int32_t balance = all_.balance[r];
          sees_small = sees_small || all_.is_small(balance);
          return balance;
        },
        survey.least, survey.most);
    survey.has_small = all_.lanes.first_lane(sees_small) >= 0;
    return survey;
  }

  EVENKEEL_HOST_DEVICE Flow step(const Survey& survey) const {
    Pair pair{survey.most.at, survey.least.at, all_.lesser(survey.most.key, -survey.least.key)};
    const Pair absorption = survey.has_small ? absorb_small() : Pair{};
    if (absorption) return all_.by_one_slot(absorption);
    if (pair.amount <= 0) return {};
    if (pair.amount >= all_.small)
      if (const Flow flow = all_.by_one_slot(pair)) return flow;
    Pair closing = close_receiver(pair.from);
    if (!closing) closing = close_sender(pair.to);
    if (closing) return all_.by_one_slot(closing);
    const Flow part = split(pair);
    return part ? part : overshoot(pair);
  }

  EVENKEEL_HOST_DEVICE void settle_equal_pairs(std::int64_t slack) {
    int from = -1;
    while ((from = all_.lanes.first(from + 1, all_.ranks(),
                                    [&](int r) { return all_.excess(r) >= all_.small; })) >= 0) {
      const std::int32_t excess = all_.excess(from);
      const Found to = all_.lanes.best(all_.ranks(), [&](int r) {
        const std::int32_t left = all_.spare(r) - excess;
        return all_.spare(r) > 0 && left >= 0 && left <= slack ? all_.spare(r) : kNoKey;
      });
      if (to.at < 0) continue;
      const Flow flow = all_.by_one_slot({from, to.at, excess});
      if (!flow) continue;
      slack -= to.key - excess;
      all_.carry_out(flow);
    }
  }

  // A rank with a small balance needs a large piece of its own to take over the balance of any other rank.
  EVENKEEL_HOST_DEVICE bool has_large_piece(int r) const {
    return all_.any_slot(r, [&](int s) { return all_.rest[s] >= all_.small; });
  }
  EVENKEEL_HOST_DEVICE Pair absorb_small() const {
    int small = -1;
    while ((small = all_.lanes.first(small + 1, all_.ranks(), [&](int r) {
             return all_.is_small(all_.balance[r]) && has_large_piece(r);
           })) >= 0)
      if (const Pair pair = absorb_into(small)) return pair;
    return {};
  }
  EVENKEEL_HOST_DEVICE Pair absorb_into(int small) const {
    const std::int32_t own = all_.balance[small];
    const int best = all_.lanes
                         .best(all_.ranks(),
                               [&](int r) {
                                 const std::int32_t its = all_.balance[r], after = its + own;
                                 const std::int32_t size = its < 0 ? -its : its;
                                 if (r == small || size < all_.small || all_.is_small(after)) return kNoKey;
                                 const bool can = its > 0
                                                      ? all_.has_slot(r, size) && all_.has_slot(small, after)
                                                      : all_.has_slot(small, size);
                                 return can ? size : kNoKey;
                               })
                         .at;
    if (best < 0) return {};
    const std::int32_t its = all_.balance[best];
    return its > 0 ? Pair{best, small, its} : Pair{small, best, -its};
  }

  EVENKEEL_HOST_DEVICE Pair close_receiver(int from) const {
    const std::int32_t excess = all_.excess(from);
    const Found to = all_.lanes.best(all_.ranks(), [&](int r) {
      const std::int32_t spare = all_.spare(r);
      return spare >= all_.small && spare <= excess && all_.has_slot(from, spare) ? -spare : kNoKey;
    });
    return to.at >= 0 ? Pair{from, to.at, -to.key} : Pair{};
  }
  EVENKEEL_HOST_DEVICE Pair close_sender(int to) const {
    const std::int32_t spare = all_.spare(to);
    const Found from = all_.lanes.best(all_.ranks(), [&](int r) {
      const std::int32_t excess = all_.excess(r);
      return excess >= all_.small && excess <= spare && all_.has_slot(r, excess) ? -excess : kNoKey;
    });
    return from.at >= 0 ? Pair{from.at, to, -from.key} : Pair{};
  }

  // The piece that a slot gives when `wanted` is split. The rest of `wanted` is 0, or large enough for a move
  // of its own.
  EVENKEEL_HOST_DEVICE std::int32_t piece_of(int slot, std::int32_t wanted) const {
    const std::int32_t piece = all_.lesser(all_.rest[slot], wanted);
    return all_.is_small(wanted - piece) ? wanted - all_.small : piece;
  }
  // The piece goes to the rank with the most spare capacity. If that rank already gets something from the
  // sender, the piece goes to another suitable rank, if there is one.
  EVENKEEL_HOST_DEVICE Flow split(const Pair& pair) const {
    const int slot = all_.best_slot(pair.from, [&](int s) {
      const std::int32_t piece = piece_of(s, pair.amount);
      return piece >= all_.least[s] && piece > 0 ? -piece : kNoKey;
    });
    if (slot < 0) return {};
    const std::int32_t amount = piece_of(slot, pair.amount);
    mark_receivers_of(pair.from);
    int target = pair.to;
    if (all_.marks[pair.to] != 0) {
      const Found other = all_.lanes.best(all_.ranks(), [&](int r) {
        const std::int32_t spare = all_.spare(r);
        return spare >= amount && !all_.is_small(spare - amount) && all_.marks[r] == 0 ? -spare : kNoKey;
      });
      if (other.at >= 0) target = other.at;
    }
    return {slot, target, amount};
  }
  EVENKEEL_HOST_DEVICE void mark_receivers_of(int from) const {
    const MoveList& moves = all_.moves;
    all_.lanes.for_each(all_.ranks(), [&](int r) { all_.marks[r] = 0; });
    all_.lanes.for_each(moves.count, [&](int i) {
      if (all_.homes.slot_rank[moves.slot[i]] == from) all_.marks[moves.to[i]] = 1;
    });
  }

  EVENKEEL_HOST_DEVICE Flow overshoot(const Pair& pair) const {
    const std::int32_t excess = all_.excess(pair.from), spare = all_.spare(pair.to);
    const auto piece = [&](int slot) { return excess > all_.least[slot] ? excess : all_.least[slot]; };
    const int slot = all_.best_slot(pair.from, [&](int s) {
      const std::int32_t p = piece(s);
      return p <= all_.rest[s] && p <= spare ? p : kNoKey;
    });
    return slot < 0 ? Flow{} : Flow{slot, pair.to, piece(slot)};
  }

  MatchState<Lanes>& all_;
};

}  // namespace evenkeel::cuda
