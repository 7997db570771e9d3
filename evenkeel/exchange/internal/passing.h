// The second level of an exchange: rows that cross the link to another node, and are passed on there by their
// gateways (plan/nodes.h).
//
// Order      Rows from a rank to one of another node stand by their gateway, then by token: those of one
//            gateway lie together, in the order in which the gateway has them.
// Message    An index message to such a rank has more behind its positions: how many rows come by each of
//            its node's gateways; then, of the rows that it gets over the link, the ranks that want each, as
//            bits by place. There are as many words as positions, since it does not know its rows yet.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/plan/nodes.h"

namespace evenkeel {

class Dispatched;

// Which rows cross links, and which are passed on.
struct Passing {
  // Rows of a part of an array.
  struct Part {
    std::int64_t begin = 0, count = 0;
  };
  struct Rows {
    RankId rank;  // of this node
    Part part;
  };

  std::vector<Part> out;                // by rank: of the rows to it, those that it gets from here
  std::vector<Part> in;                 // by rank: of the rows from it, those that it sends here
  std::vector<std::int32_t> passed_on;  // among the rows received
  std::vector<Rows> sends;              // parts of `passed_on`
  std::vector<Rows> receives;           // parts of the rows received; for each pair in the order of its sends
};

// Finds them, from what this rank sends and what others tell it.
class PassingRoutes {
 public:
  using Message = std::span<const std::int32_t>;  // the number of rows, then the row of each position

  // Of the messages to all ranks and from them, and the tokens of the rows to them, which get another order.
  // `nodes` must stay.
  PassingRoutes(const Nodes& nodes, RankId me, std::int64_t tokens, std::span<const Message> to,
                std::span<const Message> from, std::span<std::int32_t> row_tokens);

  // What is sent to a rank, and received from it, in place of the message; empty where it stays as it is.
  Message sent(RankId rank) const { return to_[rank.offset()]; }
  std::span<std::int32_t> received(RankId rank) { return from_[rank.offset()]; }
  // The new numbers of the rows to all ranks, of each rank from 0.
  std::span<const std::int32_t> new_rows() const { return new_rows_; }
  // When all is received, and `made` numbers its rows.
  std::shared_ptr<const Passing> find(const Dispatched& made);

 private:
  std::size_t longer(Message message, RankId to) const;
  void order_rows(RankId rank, Message message, std::span<const std::uint32_t> wanted_by,
                  std::span<std::int32_t> tokens, std::span<std::int32_t> new_row);
  void take_from(RankId rank, const Dispatched& made, std::vector<Passing>& by_place);

  const Nodes& nodes_;
  RankId me_;
  std::shared_ptr<Passing> passing_ = std::make_shared<Passing>();
  std::vector<std::int32_t> new_rows_;
  std::vector<std::vector<std::int32_t>> to_, from_;
};

}  // namespace evenkeel
