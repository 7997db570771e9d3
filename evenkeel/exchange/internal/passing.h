// The second level of an exchange: the rows that cross the link to another node and are passed on there, by
// their gateways (plan/nodes.h).
//
// Order      Rows from a rank to one of another node stand by their gateway, then by token, so that those
// from one
//            gateway lie together, in the order in which the gateway has them.
// Message    Behind the positions of an index message to such a rank: how many of its rows come by each
// gateway of
//            its node; then, of the rows that it gets over the link, the ranks that want each, as bits by
//            place; as many words as there are positions, since the receiver does not know the number of rows
//            yet.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/base/index.h"

namespace evenkeel {

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
  std::vector<Rows> receives;  // parts of the rows received; for each pair of ranks in the order of its sends
};

}  // namespace evenkeel
