// The second level of an exchange: which rows that cross the link to another node are passed on there, and by whom.
//
// Words      A row's gateway is the one of the ranks of a node that want it which gets it over the link: the first at
//            or behind the sender's own place in its node, so that senders of a node use unlike ones. The others get
//            the row from the gateway.
// Order      Rows from a rank to one of another node stand by their gateway, then by token, so that those from one
//            gateway lie together, in the order in which the gateway has them.
// Message    Behind the positions of an index message to such a rank: how many of its rows come by each gateway of
//            its node; then, of the rows that it gets over the link, the ranks that want each, as bits by place;
//            as many words as there are positions, since the receiver does not know the number of rows yet.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/exchange/nodes.h"

namespace evenkeel {

// One node's part of a rank's rows: who gets them over the link.
class Gateways {
 public:
  // `tokens` may be wanted at most.
  explicit Gateways(std::int64_t tokens) : wanted_by_(static_cast<std::size_t>(tokens)) {}

  void clear() { std::ranges::fill(wanted_by_, 0U); }
  void want(std::int32_t token, int place) { wanted_by_[static_cast<std::size_t>(token)] |= 1U << place; }
  std::uint32_t wanted_by(std::int32_t token) const { return wanted_by_[static_cast<std::size_t>(token)]; }
  // For a sender at this place of its own node.
  int gateway(std::int32_t token, int sender) const {
    const std::uint32_t all = wanted_by(token);
    const std::uint32_t behind = all & (~0U << sender % Nodes::kMostRanks);
    return std::countr_zero(behind != 0 ? behind : all);
  }

 private:
  std::vector<std::uint32_t> wanted_by_;  // by token: bits by place
};

// Which rows cross links, and which are passed on. Of every rank, those to it and from it.
struct Passing {
  // Rows of a part of an array.
  struct Part {
    std::int64_t begin = 0, count = 0;
  };
  struct Rows {
    RankId rank;  // of this node
    Part part;
  };
  explicit Passing(int ranks) : out(static_cast<std::size_t>(ranks)), in(out.size()) {}

  std::vector<Part> out;                // of the rows to a rank, those that it gets from here
  std::vector<Part> in;                 // of the rows from a rank, those that it sends here
  std::vector<std::int32_t> passed_on;  // among the rows received
  std::vector<Rows> sends;              // parts of `passed_on`
  std::vector<Rows> receives;           // parts of the rows received; for each pair of ranks in the order of its sends
};

}  // namespace evenkeel
