// State of a matching (excess_matcher.h): the balances that ranks still have to settle, the assignments left
// on slots, the moves made, and the flow that changes all three.
//
// Method      Searches find, among the ranks of some kind, the one whose number is nearest to a value. Few
//             ranks are scanned; from kManyRanks on they are in ordered sets, so that a move takes O(N log P)
//             for N slots a rank. Both find the same rank. No allocation once reserved.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/balance/internal/home_slots.h"
#include "evenkeel/balance/planner.h"

namespace evenkeel::internal {

// Sends `amount` assignments of a slot's expert to a rank that is not its home: one transfer.
struct Move {
  SlotId slot;
  RankId to;
  std::int64_t amount = 0;
};

// Kinds of ranks, and the number by which each kind is ordered.
enum class Kind {
  sender,                 // has an excess; ordered by excess
  closable,               // has an excess of min_segment or more, all of it in one slot; ordered by excess
  receiver,               // has spare capacity, and a borrow slot for a move; ordered by spare capacity
  small_with_large_slot,  // has a balance below min_segment and a slot of at least that; not ordered
};

// Ranks ordered by a changing number, then by rank, so that the number nearest to a value is found without a
// scan. A std::set; the node of a rank that is not in the set is kept for reuse.
class RankSet {
 public:
  void reserve(std::size_t ranks) {
    while (held_.size() < ranks) {
      held_.push_back(ranks_.emplace(0, RankId(held_.size())).first);
      idle_.push_back(ranks_.extract(held_.back()));
    }
  }
  void clear() {
    for (RankId rank : indices<RankId>(idle_.size())) drop(rank);
  }
  // Adds a rank, or changes its number.
  void set(RankId rank, std::int64_t value) {
    auto& node = idle_[rank.offset()];
    if (node.empty()) {
      if (held_[rank.offset()]->first == value) return;
      node = ranks_.extract(held_[rank.offset()]);
    }
    node.value() = {value, rank};
    held_[rank.offset()] = ranks_.insert(std::move(node)).position;
  }
  // Removes a rank; does nothing if it is not in the set.
  void drop(RankId rank) {
    auto& node = idle_[rank.offset()];
    if (node.empty()) node = ranks_.extract(held_[rank.offset()]);
  }

  // The rank with the least number from `value` up, or with the largest number up to `value`; of equal
  // numbers the first rank.
  std::optional<RankId> at_least(std::int64_t value) const {
    return rank_of(ranks_.lower_bound({value, RankId(0)}));
  }
  std::optional<RankId> at_most(std::int64_t value) const {
    const auto beyond = ranks_.upper_bound({value, RankId(std::numeric_limits<std::int32_t>::max())});
    if (beyond == ranks_.begin()) return std::nullopt;
    return at_least(std::prev(beyond)->first);
  }
  // The next rank in order of numbers, then of ranks.
  std::optional<RankId> after(RankId rank) const { return rank_of(std::next(held_[rank.offset()])); }

 private:
  using Ranks = std::set<std::pair<std::int64_t, RankId>>;

  std::optional<RankId> rank_of(Ranks::iterator at) const {
    return at == ranks_.end() ? std::nullopt : std::optional(at->second);
  }

  Ranks ranks_;
  std::vector<Ranks::iterator> held_;   // [P], for ranks in the set
  std::vector<Ranks::node_type> idle_;  // [P], for ranks not in the set, else empty
};

// Finds the moves from one rank to another: a hash table by pair of ranks.
class MovePairs {
 public:
  static constexpr std::uint32_t none = static_cast<std::uint32_t>(-1);

  void reserve(std::size_t moves) {
    before_.reserve(moves);
    used_.reserve(moves);
    if (places_.size() < 2 * moves) places_.resize(std::bit_ceil(2 * moves));
  }
  void clear() {
    for (std::size_t place : used_) places_[place] = {};
    used_.clear();
    before_.clear();
  }
  // The index of a pair's table entry, which is added if new. The index may change in the next call.
  std::size_t place_of(RankId from, RankId to) {
    if (2 * (used_.size() + 1) > places_.size()) grow();
    const std::size_t at = find(key(from, to));
    if (places_[at].key == 0) {
      places_[at].key = key(from, to);
      used_.push_back(at);
    }
    return at;
  }
  // Adds the next move (0, 1, 2, and so on) to that pair.
  void add(std::size_t place) {
    before_.push_back(places_[place].latest);
    places_[place].latest = static_cast<std::uint32_t>(before_.size() - 1);
  }
  // The latest move of a pair of ranks, and the move of the same pair before a given one; `none` if there is
  // none.
  std::uint32_t latest(std::size_t place) const { return places_[place].latest; }
  std::uint32_t latest(RankId from, RankId to) const { return latest(find(key(from, to))); }
  std::uint32_t before(std::uint32_t move) const { return before_[move]; }

 private:
  struct Place {
    std::uint64_t key = 0;  // 0: free
    std::uint32_t latest = none;
  };

  static std::uint64_t key(RankId from, RankId to) {
    return ((static_cast<std::uint64_t>(from.offset()) << 32) | to.offset()) + 1;
  }
  std::size_t find(std::uint64_t key) const {
    const std::size_t mask = places_.size() - 1;
    std::size_t at = (key * 0x9e3779b97f4a7c15ULL >> 20) & mask;
    while (places_[at].key != 0 && places_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Place> few(std::bit_ceil(4 * (used_.size() + 1)));
    few.swap(places_);
    for (std::size_t& place : used_) {
      const std::size_t at = find(few[place].key);
      places_[at] = few[place];
      place = at;
    }
  }

  std::vector<Place> places_;      // their number is a power of two
  std::vector<std::size_t> used_;  // indices of entries in use
  std::vector<std::uint32_t> before_;
};

class MatchState {
 public:
  static constexpr std::size_t kManyRanks = 512;

  explicit MatchState(std::size_t many_ranks) : many_ranks_(many_ranks) {}

  // An upper bound on the number of moves. A move uses up a slot, closes a rank's balance, or changes the
  // sign of a balance; the last two happen to a rank only a few times.
  static constexpr std::size_t most_moves(std::size_t slots, std::size_t ranks) { return slots + 8 * ranks; }

  void reserve(std::size_t slots, std::size_t ranks) {
    balance_.resize(ranks);
    rest_.resize(slots);
    borrowed_.reserve(ranks);
    open_.reserve(ranks);
    moves_.reserve(most_moves(slots, ranks));
    pairs_.reserve(moves_.capacity());
    first_of_.reserve(ranks + 1);
    of_rank_.reserve(2 * moves_.capacity());
    many_ = ranks >= many_ranks_;
    if (!many_) return;
    for (RankSet& set : sets_) set.reserve(ranks);
  }

  // Ranks have a balance, above 0 an excess of work, below 0 spare capacity. At most `borrow_slots` moves end
  // at a rank.
  void reset(const HomeSlots& slots, std::span<const std::int64_t> balance, std::int64_t min_segment,
             std::int64_t borrow_slots = kUnlimitedSlots) {
    slots_ = &slots;
    min_segment_ = std::max<std::int64_t>(min_segment, 1);
    borrow_slots_ = borrow_slots;
    limited_ = borrow_slots < static_cast<std::int64_t>(slots.size());
    reserve(slots.size(), balance.size());
    many_ &= !limited_;
    if (limited_) borrowed_.assign(balance.size(), 0);
    std::ranges::copy(balance, balance_.begin());
    for (SlotId s : indices<SlotId>(slots.size())) rest_[s] = slots[s].share;
    moves_.clear();
    moves_listed_ = false;
    pairs_.clear();
    open(indices<RankId>(balance.size()));
  }

  // From now on moves are between these ranks only, in order.
  void open(const auto& ranks) {
    open_.clear();
    for (RankId r : ranks)
      if (balance_[r] != 0) open_.push_back(r);
    if (!many_) return;
    for (RankSet& set : sets_) set.clear();
    for (RankId r : open_) update(r);
  }

  std::span<const Move> moves() const { return moves_; }
  std::span<const std::int64_t> balance() const { return balance_.span(); }

 protected:
  std::int64_t excess(RankId r) const { return balance_[r]; }
  std::int64_t spare(RankId r) const { return -balance_[r]; }
  bool is_small(std::int64_t amount) const {
    return amount != 0 && amount < min_segment_ && amount > -min_segment_;
  }
  RankId sender(const Move& m) const { return (*slots_)[m.slot].rank; }
  std::int64_t least(SlotId s) const { return (*slots_)[s].least; }

  // Whether one more move may end at the rank.
  bool has_slot(RankId r) const { return !limited_ || borrowed_[r.offset()] < borrow_slots_; }

  // The rank of the kind with the least number from `value` up, or with the largest number up to `value`; of
  // equal numbers the first rank.
  template <Kind kind>
  std::optional<RankId> at_least(std::int64_t value) const {
    if (many_) return sets_[static_cast<std::size_t>(kind)].at_least(value);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    return last_that<kind>([&](RankId, std::int64_t number) { return number >= value && number < best; },
                           best);
  }
  // Only for kinds whose numbers are above 0.
  template <Kind kind>
  std::optional<RankId> at_most(std::int64_t value) const {
    if (many_) return sets_[static_cast<std::size_t>(kind)].at_most(value);
    std::int64_t best = 0;
    return last_that<kind>([&](RankId, std::int64_t number) { return number > best && number <= value; },
                           best);
  }
  // The next rank of the kind, in order of numbers, then of ranks.
  template <Kind kind>
  std::optional<RankId> after(RankId rank) const {
    if (many_) return sets_[static_cast<std::size_t>(kind)].after(rank);
    const std::int64_t own = number<kind>(rank);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    const auto is_next = [&](RankId r, std::int64_t number) {
      return number < best && (number > own || (number == own && rank < r));
    };
    return last_that<kind>(is_next, best);
  }

  // The slot of a rank that can give `amount` and has the least left.
  std::optional<SlotId> slot_for(RankId from, std::int64_t amount, SlotId except = SlotId(-1)) const {
    std::optional<SlotId> best;
    for (SlotId s = slots_->begin(from); s < slots_->end(from); ++s)
      if (s != except && rest_[s] >= amount && amount >= least(s) && (!best || rest_[s] < rest_[*best]))
        best = s;
    return best;
  }

  bool sends_to(RankId from, RankId to) const { return pairs_.latest(from, to) != MovePairs::none; }

  void flow(SlotId slot, RankId to, std::int64_t amount) {
    const RankId from = (*slots_)[slot].rank;
    rest_[slot] -= amount;
    balance_[from] -= amount;
    balance_[to] += amount;
    moves_listed_ = false;
    const std::size_t pair = pairs_.place_of(from, to);
    std::uint32_t same = pairs_.latest(pair);
    while (same != MovePairs::none && moves_[same].slot != slot) same = pairs_.before(same);
    if (same == MovePairs::none) {
      moves_.push_back({slot, to, amount});
      pairs_.add(pair);
      if (limited_) ++borrowed_[to.offset()];
    } else if ((moves_[same].amount += amount) == 0) {
      moves_.erase(moves_.begin() + same);
      if (limited_) --borrowed_[to.offset()];
      pairs_.clear();
      for (const Move& m : moves_) pairs_.add(pairs_.place_of(sender(m), m.to));
    }
    if (!many_) return;
    update(from);
    update(to);
  }

  bool try_flow(RankId from, RankId to, std::int64_t amount) {
    const auto slot = has_slot(to) ? slot_for(from, amount) : std::nullopt;
    if (slot) flow(*slot, to, amount);
    return slot.has_value();
  }

  // The moves that begin or end at a rank, in order.
  std::span<const std::uint32_t> moves_at(RankId rank) {
    if (!moves_listed_) list_moves();
    return group_of(of_rank_, first_of_, rank.offset());
  }

  void drop_settled() {
    std::erase_if(open_, [this](RankId r) { return balance_[r] == 0; });
  }

  const HomeSlots* slots_ = nullptr;
  std::int64_t min_segment_ = 0;
  IndexedVector<SlotId, std::int64_t> rest_;
  std::vector<RankId> open_;  // in order; with many ranks, some may have a balance of 0
  std::vector<Move> moves_;
  bool many_ = false;

 private:
  template <Kind kind>
  std::int64_t number(RankId r) const {
    return kind == Kind::small_with_large_slot ? 0 : kind == Kind::receiver ? spare(r) : excess(r);
  }
  template <Kind kind>
  bool is_of(RankId r) const {
    if constexpr (kind == Kind::small_with_large_slot) {
      if (!is_small(balance_[r])) return false;
      bool has_much = false;
      for (SlotId s = slots_->begin(r); s < slots_->end(r); ++s) has_much |= rest_[s] >= min_segment_;
      return has_much;
    }
    if constexpr (kind == Kind::closable) return excess(r) >= min_segment_ && slot_for(r, excess(r));
    if constexpr (kind == Kind::receiver)
      if (!has_slot(r)) return false;
    return number<kind>(r) > 0;
  }

  // Scans the open ranks; a rank that is better than the best so far replaces it. Returns the best rank;
  // `best` becomes its number.
  template <Kind kind, class IsBetter>
  std::optional<RankId> last_that(const IsBetter& is_better, std::int64_t& best) const {
    constexpr RankId kNone(-1);
    RankId last = kNone;
    for (RankId r : open_)
      if (is_better(r, number<kind>(r)) && is_of<kind>(r)) last = r, best = number<kind>(r);
    return last == kNone ? std::nullopt : std::optional(last);
  }

  // Updates the sets. Call it after a change of a rank's balance or of what is left on its slots.
  void update(RankId r) {
    put<Kind::sender>(r);
    put<Kind::closable>(r);
    put<Kind::receiver>(r);
    put<Kind::small_with_large_slot>(r);
  }
  template <Kind kind>
  void put(RankId r) {
    RankSet& set = sets_[static_cast<std::size_t>(kind)];
    is_of<kind>(r) ? set.set(r, number<kind>(r)) : set.drop(r);
  }

  void list_moves() {
    first_of_.assign(balance_.size() + 1, 0);
    of_rank_.resize(2 * moves_.size());
    const auto ends = [this](const Move& m) { return std::array{sender(m), m.to}; };
    for (const Move& m : moves_)
      for (RankId rank : ends(m)) ++first_of_[rank.offset()];
    std::partial_sum(first_of_.begin(), first_of_.end(), first_of_.begin());
    // Each rank's part is filled from its end to its beginning.
    for (std::size_t i = moves_.size(); i-- > 0;)
      for (RankId rank : ends(moves_[i]))
        of_rank_[--first_of_[rank.offset()]] = static_cast<std::uint32_t>(i);
    moves_listed_ = true;
  }

  IndexedVector<RankId, std::int64_t> balance_;
  MovePairs pairs_;
  bool moves_listed_ = false;            // of_rank_ is up to date
  std::vector<std::uint32_t> first_of_;  // [P + 1] into of_rank_
  std::vector<std::uint32_t> of_rank_;   // moves that begin or end at a rank, in order
  bool limited_ = false;                 // borrow_slots_ is a limit
  std::int64_t borrow_slots_ = kUnlimitedSlots;
  std::vector<std::int64_t> borrowed_;  // [P] if limited_: the number of moves that end at a rank
  std::size_t many_ranks_;
  std::array<RankSet, 4> sets_;  // by kind; used with many ranks
};

}  // namespace evenkeel::internal
