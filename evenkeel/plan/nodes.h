// The nodes that ranks are on, for an exchange in two levels: what several ranks of a node want crosses the
// link to it once.
//
// Gateway  The one of a node's ranks that want a row which gets it over the link, and passes it on: the first
//          at or behind the sender's own place in its node, so that senders of a node use unlike ones.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

class Nodes {
 public:
  static constexpr int kMostRanks = 32;  // of a node: they stand in the bits of a word

  // One level: every rank gets what it wants from whoever has it.
  Nodes() = default;
  // The node of each rank, numbered from 0 without gaps. Throws InvalidArgument where they are not, and for a
  // node of more than kMostRanks.
  explicit Nodes(std::span<const int> node_of_rank);

  // Whether these are nodes in two levels, none of too many ranks.
  static bool make_two_levels(std::span<const int> node_of_rank);

  // Whether any node has several ranks, and there is another.
  bool two_levels() const { return two_levels_; }
  int num_ranks() const { return static_cast<int>(node_of_rank_.size()); }
  int num_nodes() const { return static_cast<int>(members_.size()); }
  int node_of(RankId rank) const { return node_of_rank_[rank.offset()]; }
  // Of ranks of a node, as bits by place, for a sender at this place of its own.
  static int gateway(std::uint32_t wanted_by, int sender) {
    const std::uint32_t behind = wanted_by & ~0U << sender;
    return std::countr_zero(behind != 0 ? behind : wanted_by);
  }
  // By transfer, the rank that sends the weights: the lender, but to a node where several borrow the same
  // from it only to the first of them, which passes them on to the others. O(T log T) for T transfers in two
  // levels.
  void find_senders(std::span<const Transfer> transfers, std::vector<RankId>& senders) const;
  // Its ranks, ascending.
  std::span<const RankId> members(int node) const { return members_[static_cast<std::size_t>(node)]; }
  // A rank's place among its node's.
  int place_of(RankId rank) const { return places_[rank.offset()]; }
  // Whether rows from one rank may reach the other through a third, of its node.
  bool passes_on(RankId from, RankId to) const {
    return two_levels_ && node_of(from) != node_of(to) && members(node_of(to)).size() > 1;
  }

 private:
  std::vector<int> node_of_rank_, places_;
  std::vector<std::vector<RankId>> members_;
  bool two_levels_ = false;
};

}  // namespace evenkeel
