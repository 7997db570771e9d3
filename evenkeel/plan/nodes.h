// The node of each rank, for an exchange in two levels: if several ranks of a node need a row, the row
// crosses the link to that node only once.
//
// Gateway  The rank that receives a row over the link and forwards it to the other ranks of its node that
//          need it. Starting at the sender's index within its own node, it is the first index whose rank
//          needs the row. So the senders of one node use different gateways.
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
  static constexpr int kMostRanks = 32;  // ranks of a node, because each is one bit of a word

  // One level: every rank receives directly from the rank that has the row or the weights.
  Nodes() = default;
  // The node of each rank. Throws InvalidArgument unless nodes are numbered from 0 without gaps and none has
  // more than kMostRanks.
  explicit Nodes(std::span<const int> node_of_rank);

  // True if there are several nodes, at least one has several ranks, and none has more than kMostRanks.
  static bool make_two_levels(std::span<const int> node_of_rank);

  // True if there are several nodes, and at least one has several ranks.
  bool two_levels() const { return two_levels_; }
  int num_ranks() const { return static_cast<int>(node_of_rank_.size()); }
  int num_nodes() const { return static_cast<int>(members_.size()); }
  int node_of(RankId rank) const { return node_of_rank_[rank.offset()]; }
  // The gateway's index in its node, for a row that the ranks in `needed_by` need (a bit for each index). The
  // row's sender has index `sender` in its own node.
  static int gateway(std::uint32_t needed_by, int sender) {
    const std::uint32_t behind = needed_by & ~0U << sender;
    return std::countr_zero(behind != 0 ? behind : needed_by);
  }
  // For each transfer, finds the rank that sends the weights, usually the lender. If several ranks of another
  // node borrow the same expert from one lender, the lender sends only to the first of them, and that rank
  // sends to the others. O(T log T) for T transfers in two levels.
  void find_senders(std::span<const Transfer> transfers, std::vector<RankId>& senders) const;
  // A node's ranks, ascending.
  std::span<const RankId> members(int node) const { return members_[static_cast<std::size_t>(node)]; }
  // A rank's index among the ranks of its node.
  int index_in_node(RankId rank) const { return index_in_node_[rank.offset()]; }
  // True if rows may go from `from` to `to` through another rank of `to`'s node.
  bool may_forward(RankId from, RankId to) const {
    return two_levels_ && node_of(from) != node_of(to) && members(node_of(to)).size() > 1;
  }

 private:
  std::vector<int> node_of_rank_, index_in_node_;
  std::vector<std::vector<RankId>> members_;
  bool two_levels_ = false;
};

}  // namespace evenkeel
