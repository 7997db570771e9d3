// Ranks in order of a number that changes, equal numbers in order of ranks: what is nearest to a value,
// without looking at all.
//
// Method      A std::set, whose nodes are kept by rank while the rank is not in it.
// Cost        O(log P) a change or question. No allocation once reserved for as many ranks.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "evenkeel/base/index.h"

namespace evenkeel::internal {

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
  // A rank that is not in the set may be dropped.
  void drop(RankId rank) {
    auto& node = idle_[rank.offset()];
    if (node.empty()) node = ranks_.extract(held_[rank.offset()]);
  }

  // The rank whose number is the least of those from `value` up, or the largest up to it; of equal ones the
  // first.
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
  std::vector<Ranks::iterator> held_;   // [P], of the ranks in the set
  std::vector<Ranks::node_type> idle_;  // [P], empty for those
};

}  // namespace evenkeel::internal
