#include "evenkeel/balance/excess_matcher.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace evenkeel {

namespace {

__extension__ using Wide = __int128;  // sums of spare capacity over many ranks

constexpr std::int64_t kMostBalance = std::numeric_limits<std::int64_t>::max();

}  // namespace

void ExcessMatcher::reserve(std::size_t slots, std::size_t ranks) {
  balance_.resize(ranks);
  rest_.resize(slots);
  open_.reserve(ranks);
  moves_.reserve(most_moves(slots, ranks));
  many_ = ranks >= many_ranks_;
  if (!many_) return;
  for (RankSet* set : {&senders_, &closable_, &receivers_, &small_with_much_}) set->reserve(ranks);
  pairs_.reserve(moves_.capacity());
  first_of_.reserve(ranks + 1);
  of_rank_.reserve(2 * moves_.capacity());
}

void ExcessMatcher::reset(const HomeSlots& slots, std::span<const std::int64_t> balance,
                          std::int64_t min_segment) {
  slots_ = &slots;
  min_segment_ = std::max<std::int64_t>(min_segment, 1);
  reserve(slots.size(), balance.size());
  std::ranges::copy(balance, balance_.begin());
  for (SlotId s : indices<SlotId>(slots.size())) rest_[s] = slots[s].share;
  moves_.clear();
  moves_listed_ = false;
  if (many_) begin_sets();
}

bool ExcessMatcher::settle(std::span<const RankId> ranks) {
  open_.assign(ranks.begin(), ranks.end());
  drop_settled();
  settle_equal_pairs();
  while (true) {
    if (!many_) drop_settled();
    if (done()) return true;
    if (step()) continue;
    drop_settled();
    return repair();
  }
}

bool ExcessMatcher::done() const {
  if (many_) return senders_.empty();
  return std::ranges::none_of(open_, [this](RankId r) { return excess(r) > 0; });
}

RankId ExcessMatcher::most_excess() const {
  if (many_) return *senders_.at_most(kMostBalance);
  return *std::ranges::max_element(open_, {}, [this](RankId r) { return balance_[r]; });
}

std::optional<RankId> ExcessMatcher::most_spare() const {
  if (many_) return receivers_.at_most(kMostBalance);
  return *std::ranges::min_element(open_, {}, [this](RankId r) { return balance_[r]; });
}

void ExcessMatcher::drop_settled() {
  std::erase_if(open_, [this](RankId r) { return balance_[r] == 0; });
}

bool ExcessMatcher::step() {
  if (min_segment_ > 1 && absorb_small()) return true;
  const RankId from = most_excess();
  const auto receiver = most_spare();
  if (!receiver) return false;
  const RankId to = *receiver;
  const std::int64_t amount = std::min(excess(from), spare(to));
  if (amount <= 0) return false;
  if (amount >= min_segment_ && try_flow(from, to, amount)) return true;
  return close_receiver(from) || close_sender(to) || split(from, to) || overshoot(from, to);
}

bool ExcessMatcher::settle_equal_pairs() {
  Wide space_left = 0;
  for (RankId r : open_) space_left -= balance_[r];
  auto slack = static_cast<std::int64_t>(std::min<Wide>(space_left, kMostBalance));
  for (RankId from : open_) {
    if (excess(from) < min_segment_) continue;
    const RankId best = matching_spare(from, slack);
    if (best == from) continue;
    const std::int64_t left = spare(best) - excess(from);
    if (try_flow(from, best, excess(from))) slack -= left;
  }
  return true;
}

// The least spare capacity that takes all of the excess, and of which no more than `slack` stays; `from` for
// none.
RankId ExcessMatcher::matching_spare(RankId from, std::int64_t slack) const {
  if (many_) {
    const auto to = receivers_.at_least(excess(from));
    return to && spare(*to) - excess(from) <= slack ? *to : from;
  }
  RankId best = from;
  for (RankId to : open_) {
    const std::int64_t left = spare(to) - excess(from);
    if (spare(to) > 0 && left >= 0 && left <= slack && (best == from || spare(to) < spare(best))) best = to;
  }
  return best;
}

bool ExcessMatcher::absorb_small() {
  if (many_) return absorb_small_of_many();
  for (RankId r : open_)
    if (is_small(balance_[r]) && absorb_into(r)) return true;
  return false;
}

bool ExcessMatcher::absorb_into(RankId small) {
  RankId best = small;
  for (RankId r : open_) {
    const std::int64_t size = std::abs(balance_[r]);
    if (r == small || size < min_segment_) continue;
    const std::int64_t after = balance_[r] + balance_[small];
    if (is_small(after)) continue;
    if (best != small && std::abs(balance_[best]) <= size) continue;
    if (excess(r) > 0 ? slot_for(r, size) && slot_for(small, after) : slot_for(small, size).has_value())
      best = r;
  }
  if (best == small) return false;
  return excess(best) > 0 ? try_flow(best, small, excess(best)) : try_flow(small, best, spare(best));
}

bool ExcessMatcher::close_receiver(RankId from) {
  if (many_) {
    const RankId to = receiver_to_close(from);
    return to != from && try_flow(from, to, spare(to));
  }
  RankId best = from;
  for (RankId r : open_) {
    if (spare(r) < min_segment_ || spare(r) > excess(from)) continue;
    if (best != from && spare(best) >= spare(r)) continue;
    if (slot_for(from, spare(r))) best = r;
  }
  return best != from && try_flow(from, best, spare(best));
}

bool ExcessMatcher::close_sender(RankId to) {
  if (many_) {
    const auto from = closable_.at_most(spare(to));
    return from && try_flow(*from, to, excess(*from));
  }
  RankId best = to;
  for (RankId r : open_) {
    if (excess(r) < min_segment_ || excess(r) > spare(to)) continue;
    if (best != to && excess(best) >= excess(r)) continue;
    if (slot_for(r, excess(r))) best = r;
  }
  return best != to && try_flow(best, to, excess(best));
}

// No single slot closes either side: the slot with the most to give gives it, to a rank that gets nothing
// from `from` yet if possible. What is left to move stays large enough to be moved.
bool ExcessMatcher::split(RankId from, RankId to) {
  const std::int64_t wanted = std::min(excess(from), spare(to));
  std::optional<SlotId> best;
  std::int64_t amount = 0;
  for (SlotId s = slots_->begin(from); s < slots_->end(from); ++s) {
    std::int64_t piece = std::min(rest_[s], wanted);
    if (is_small(wanted - piece)) piece = wanted - min_segment_;
    if (piece >= (*slots_)[s].least && piece > amount) best = s, amount = piece;
  }
  if (!best) return false;
  flow(*best, split_target(from, to, amount), amount);
  return true;
}

RankId ExcessMatcher::split_target(RankId from, RankId to, std::int64_t amount) const {
  if (many_) return split_target_of_many(from, to, amount);
  RankId target = to;
  for (RankId r : open_)
    if (spare(r) >= amount && !is_small(spare(r) - amount) && !sends_to(from, r) &&
        (sends_to(from, target) || spare(r) > spare(target)))
      target = r;
  return target;
}

// A piece larger than the excess, where that is too small to be moved, to the rank with the most spare
// capacity.
bool ExcessMatcher::overshoot(RankId from, RankId to) {
  std::optional<SlotId> best;
  std::int64_t amount = spare(to) + 1;
  for (SlotId s = slots_->begin(from); s < slots_->end(from); ++s) {
    const std::int64_t piece = std::max(excess(from), (*slots_)[s].least);
    if (piece <= rest_[s] && piece < amount) best = s, amount = piece;
  }
  if (best) flow(*best, to, amount);
  return best.has_value();
}

bool ExcessMatcher::repair() {
  for (RankId from : open_) {
    while (excess(from) > 0) {
      const bool repaired = std::ranges::any_of(
          open_, [&](RankId to) { return spare(to) > 0 && (lengthen(from, to) || detour(from, to)); });
      if (!repaired &&
          std::ranges::none_of(open_, [&](RankId to) { return spare(to) > 0 && swap(from, to); }))
        return false;
    }
  }
  return true;
}

// By moving more, or less, along a transfer that there is; or by one more transfer beside it.
bool ExcessMatcher::lengthen(RankId from, RankId to) {
  if (many_ && !sends_to(from, to) && !sends_to(to, from)) return false;
  const std::int64_t amount = std::min(excess(from), spare(to));
  for (const Move& m : moves_) {
    const auto& slot = (*slots_)[m.slot];
    if (slot.rank == from && m.to == to && rest_[m.slot] >= amount) return flow(m.slot, to, amount), true;
    if (slot.rank == to && m.to == from && m.amount - amount >= slot.least)
      return flow(m.slot, from, -amount), true;
  }
  for (const Move& m : moves_) {
    const auto& slot = (*slots_)[m.slot];
    if (slot.rank != from || m.to != to) continue;
    const std::int64_t back = min_segment_ - amount;
    if (back <= 0 || m.amount - back < slot.least) continue;
    const auto other = slot_for(from, min_segment_, m.slot);
    if (!other) continue;
    flow(m.slot, to, -back);
    flow(*other, to, min_segment_);
    return true;
  }
  return false;
}

// By leading a transfer that ends or begins at one of the two ranks through the other: each of the two pieces
// is then large, and their difference is the amount. The smallest such transfer is taken.
bool ExcessMatcher::detour(RankId from, RankId to) {
  const std::int64_t amount = std::min(excess(from), spare(to));
  const std::size_t best = shortest_detour(from, to, amount);
  if (best == moves_.size()) return false;
  const Move m = moves_[best];
  const RankId sender = (*slots_)[m.slot].rank;
  const RankId through = sender == to || m.to == to ? from : to;
  const std::int64_t in = m.amount + (sender == to ? -amount : sender == from ? amount : 0);
  const std::int64_t out = m.amount + (m.to == to ? amount : m.to == from ? -amount : 0);
  flow(m.slot, m.to, -m.amount);
  flow(m.slot, through, in);
  flow(*slot_for(through, out), m.to, out);
  return true;
}

std::size_t ExcessMatcher::shortest_detour(RankId from, RankId to, std::int64_t amount) {
  std::size_t best = moves_.size();
  const auto consider = [&](std::size_t i) {
    const bool is_less = best == moves_.size() || moves_[i].amount < moves_[best].amount ||
                         (moves_[i].amount == moves_[best].amount && i < best);
    if (is_less && can_detour(moves_[i], from, to, amount)) best = i;
  };
  if (!many_) {
    for (std::size_t i = 0; i < moves_.size(); ++i) consider(i);
    return best;
  }
  if (!moves_listed_) list_moves_of_ranks();
  for (RankId end : {from, to})
    for (std::uint32_t at = first_of_[end.offset()]; at < first_of_[end.offset() + 1]; ++at)
      consider(of_rank_[at]);
  return best;
}

bool ExcessMatcher::can_detour(const Move& m, RankId from, RankId to, std::int64_t amount) const {
  const RankId sender = (*slots_)[m.slot].rank;
  const bool at_to = sender == to || m.to == to;
  const bool at_from = sender == from || m.to == from;
  if (at_to == at_from) return false;
  const RankId through = at_to ? from : to;
  const std::int64_t in = m.amount + (sender == to ? -amount : sender == from ? amount : 0);
  const std::int64_t out = m.amount + (m.to == to ? amount : m.to == from ? -amount : 0);
  return in >= (*slots_)[m.slot].least && in - m.amount <= rest_[m.slot] &&
         slot_for(through, out).has_value();
}

// By a piece each way, whose difference is the amount.
bool ExcessMatcher::swap(RankId from, RankId to) {
  const std::int64_t amount = std::min(excess(from), spare(to));
  for (SlotId s = slots_->begin(to); s < slots_->end(to); ++s) {
    const std::int64_t back = (*slots_)[s].least;
    if (back <= 0 || rest_[s] < back) continue;
    const auto forth = slot_for(from, back + amount);
    if (!forth) continue;
    flow(*forth, to, back + amount);
    flow(s, from, back);
    return true;
  }
  return false;
}

std::optional<SlotId> ExcessMatcher::slot_for(RankId from, std::int64_t amount, SlotId except) const {
  std::optional<SlotId> best;
  for (SlotId s = slots_->begin(from); s < slots_->end(from); ++s)
    if (s != except && rest_[s] >= amount && amount >= (*slots_)[s].least &&
        (!best || rest_[s] < rest_[*best]))
      best = s;
  return best;
}

bool ExcessMatcher::sends_to(RankId from, RankId to) const {
  if (many_) return pairs_.latest(from, to) != MovePairs::none;
  return std::ranges::any_of(moves_,
                             [&](const Move& m) { return m.to == to && (*slots_)[m.slot].rank == from; });
}

bool ExcessMatcher::try_flow(RankId from, RankId to, std::int64_t amount) {
  const auto slot = slot_for(from, amount);
  if (!slot) return false;
  flow(*slot, to, amount);
  return true;
}

void ExcessMatcher::flow(SlotId slot, RankId to, std::int64_t amount) {
  rest_[slot] -= amount;
  balance_[(*slots_)[slot].rank] -= amount;
  balance_[to] += amount;
  const std::size_t same = find_move(slot, to);
  moves_listed_ = false;
  if (same == moves_.size()) {
    moves_.push_back({slot, to, amount});
    if (many_) pairs_.add((*slots_)[slot].rank, to);
  } else if ((moves_[same].amount += amount) == 0) {
    moves_.erase(moves_.begin() + static_cast<std::ptrdiff_t>(same));
    if (many_) {
      pairs_.clear();
      for (const Move& m : moves_) pairs_.add((*slots_)[m.slot].rank, m.to);
    }
  }
  if (!many_) return;
  update((*slots_)[slot].rank);
  update(to);
}

std::size_t ExcessMatcher::find_move(SlotId slot, RankId to) const {
  if (many_) {
    std::uint32_t move = pairs_.latest((*slots_)[slot].rank, to);
    while (move != MovePairs::none && moves_[move].slot != slot) move = pairs_.before(move);
    return move == MovePairs::none ? moves_.size() : move;
  }
  const auto same = std::ranges::find_if(moves_, [=](const Move& m) { return m.slot == slot && m.to == to; });
  return static_cast<std::size_t>(same - moves_.begin());
}

}  // namespace evenkeel
