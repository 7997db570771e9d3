// The second level of an exchange: rows cross the link to another node once, and gateways (plan/nodes.h)
// forward them there.
//
// Order      Rows from a rank to a rank of another node are sorted by gateway, then by token. So the rows of
//            one gateway are contiguous, in the gateway's own order.
// Message    An index message to a rank of another node has two additions after its positions. The first is
//            the number of rows that come through each gateway of the receiver's node. The second is, for
//            each row that the receiver gets over the link, a bit mask of the ranks that need the row (by
//            index in the node). The mask array has one word per position, because the receiver does not know
//            its number of rows yet.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/plan/nodes.h"

namespace evenkeel {

class Dispatched;

// A range of rows in an array.
struct RowRange {
  std::int64_t begin = 0, count = 0;
};

// Which rows cross links and which rows are forwarded within the node.
struct NodeForwarding {
  struct Rows {
    RankId rank;  // in this node
    RowRange range;
  };

  std::vector<RowRange> direct_out;          // by rank: the rows for it that are sent to it directly
  std::vector<RowRange> direct_in;           // by rank: the rows from it that it sends here directly
  std::vector<std::int32_t> forwarded_rows;  // received rows to forward
  std::vector<Rows> sends;                   // ranges of `forwarded_rows`
  std::vector<Rows> receives;  // ranges of the received rows, in the order of the sender's sends
};

// Computes the NodeForwarding from this rank's messages and the received ones.
class ForwardingRoutes {
 public:
  using Message = std::span<const std::int32_t>;  // the number of rows, then the row of each position

  // `to` and `from` are the messages to and from all ranks. Reorders `row_tokens`, the tokens of the rows to
  // all ranks. `nodes` must outlive this object.
  ForwardingRoutes(const Nodes& nodes, RankId me, std::int64_t tokens, std::span<const Message> to,
                   std::span<const Message> from, std::span<std::int32_t> row_tokens);

  // The extended messages, sent and received instead of the plain ones; empty if the plain one is used.
  Message sent(RankId rank) const { return to_[rank.offset()]; }
  std::span<std::int32_t> received(RankId rank) { return from_[rank.offset()]; }
  // The new numbers of the rows to all ranks; each rank's rows count from 0.
  std::span<const std::int32_t> new_rows() const { return new_rows_; }
  // Call once all messages are received and the rows of `made` are numbered.
  std::shared_ptr<const NodeForwarding> find(const Dispatched& made);

 private:
  std::size_t longer(Message message, RankId to) const;
  void order_rows(RankId rank, Message message, std::span<const std::uint32_t> needed_by,
                  std::span<std::int32_t> tokens, std::span<std::int32_t> new_row);
  void take_from(RankId rank, const Dispatched& made, std::vector<NodeForwarding>& by_member);

  const Nodes& nodes_;
  RankId me_;
  std::shared_ptr<NodeForwarding> forwarding_ = std::make_shared<NodeForwarding>();
  std::vector<std::int32_t> new_rows_;
  std::vector<std::vector<std::int32_t>> to_, from_;
};

}  // namespace evenkeel
