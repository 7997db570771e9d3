// ExcessMatcher's searches among many ranks, in ordered sets. They find the same rank as a walk over all
// ranks in order.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "evenkeel/balance/excess_matcher.h"

namespace evenkeel {

namespace {

__extension__ using Wide = __int128;  // a balance and a segment

std::optional<RankId> first_at_least(const RankSet& ranks, Wide value) {
  if (value > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return ranks.at_least(static_cast<std::int64_t>(value));
}

}  // namespace

void ExcessMatcher::begin_sets() {
  for (RankSet* set : {&senders_, &closable_, &receivers_, &small_with_much_}) set->reset(balance_.size());
  pairs_.clear();
  for (RankId r : indices<RankId>(balance_.size())) update(r);
}

// After a change of a rank's balance or of what is left of its slots.
void ExcessMatcher::update(RankId r) {
  const bool sends = excess(r) > 0;
  sends ? senders_.set(r, excess(r)) : senders_.drop(r);
  spare(r) > 0 ? receivers_.set(r, spare(r)) : receivers_.drop(r);
  const bool closes = sends && excess(r) >= min_segment_ && slot_for(r, excess(r));
  closes ? closable_.set(r, excess(r)) : closable_.drop(r);
  bool has_much = false;
  if (is_small(balance_[r]))
    for (SlotId s = slots_->begin(r); s < slots_->end(r); ++s) has_much |= rest_[s] >= min_segment_;
  has_much ? small_with_much_.set(r, 0) : small_with_much_.drop(r);
}

// Whoever absorbs a small balance takes a piece of min_segment or more from one of its slots.
bool ExcessMatcher::absorb_small_of_many() {
  for (auto small = small_with_much_.at_least(0); small; small = small_with_much_.after(*small))
    if (const auto best = absorbing(*small))
      return excess(*best) > 0 ? try_flow(*best, *small, excess(*best))
                               : try_flow(*small, *best, spare(*best));
  return false;
}

// The rank with the smallest balance that can take over that of `small`.
std::optional<RankId> ExcessMatcher::absorbing(RankId small) const {
  const Wide balance = balance_[small];
  const Wide least = min_segment_;
  std::optional<RankId> best;
  std::int64_t best_size = 0;
  const auto consider = [&](std::optional<RankId> r, std::int64_t size) {
    if (best && (size > best_size || (size == best_size && *best < *r))) return;
    best = r;
    best_size = size;
  };
  for (SlotId s = slots_->begin(small); s < slots_->end(small); ++s) {
    const Wide piece = (*slots_)[s].least;
    const auto to = first_at_least(receivers_, std::max({least, piece, least + balance}));
    if (to && spare(*to) <= rest_[s]) consider(to, spare(*to));
    const auto from = first_at_least(closable_, std::max({least, least - balance, piece - balance}));
    if (from && excess(*from) + balance <= rest_[s]) consider(from, excess(*from));
  }
  return best;
}

// The one with the most spare capacity that a slot of `from` fills; `from` for none.
RankId ExcessMatcher::receiver_to_close(RankId from) const {
  RankId best = from;
  for (SlotId s = slots_->begin(from); s < slots_->end(from); ++s) {
    const auto to = receivers_.at_most(std::min(rest_[s], excess(from)));
    if (!to || spare(*to) < std::max(min_segment_, (*slots_)[s].least)) continue;
    if (best == from || spare(*to) > spare(best)) best = *to;
  }
  return best;
}

// `to` has the most spare capacity of all; where it gets something already, another one that leaves no small
// spare capacity.
RankId ExcessMatcher::split_target_of_many(RankId from, RankId to, std::int64_t amount) const {
  if (!sends_to(from, to)) return to;
  for (std::optional<RankId> r = to; r && spare(*r) >= amount;) {
    if (is_small(spare(*r) - amount)) {
      r = receivers_.at_most(amount);
      continue;
    }
    if (!sends_to(from, *r)) return *r;
    const auto next = receivers_.after(*r);
    r = next && spare(*next) == spare(*r) ? next : receivers_.at_most(spare(*r) - 1);
  }
  return to;
}

void ExcessMatcher::list_moves_of_ranks() {
  first_of_.assign(balance_.size() + 1, 0);
  of_rank_.resize(2 * moves_.size());
  const auto ends = [this](const Move& m) { return std::array{(*slots_)[m.slot].rank, m.to}; };
  for (const Move& m : moves_)
    for (RankId rank : ends(m)) ++first_of_[rank.offset()];
  std::partial_sum(first_of_.begin(), first_of_.end(), first_of_.begin());
  // Counted down from the end of each rank's part to its beginning.
  for (std::size_t i = moves_.size(); i-- > 0;)
    for (RankId rank : ends(moves_[i])) of_rank_[--first_of_[rank.offset()]] = static_cast<std::uint32_t>(i);
  moves_listed_ = true;
}

}  // namespace evenkeel
