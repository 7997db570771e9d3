#include "evenkeel/exchange/internal/node_forwarding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/exchange/dispatched.h"

namespace evenkeel {

namespace {

RowRange range_of(std::span<const std::int32_t> by_gateway, int index) {
  const auto before = by_gateway.first(static_cast<std::size_t>(index));
  return {std::accumulate(before.begin(), before.end(), std::int64_t{0}),
          by_gateway[static_cast<std::size_t>(index)]};
}

// The index of a row here among the received rows, which do not include this rank's own.
std::int64_t received_row(const Dispatched& made, std::int64_t row) {
  return row < made.own_row + made.own_rows ? row : row - made.own_rows;
}

}  // namespace

ForwardingRoutes::ForwardingRoutes(const Nodes& nodes, RankId me, std::int64_t tokens,
                                   std::span<const Message> to, std::span<const Message> from,
                                   std::span<std::int32_t> row_tokens)
    : nodes_(nodes), me_(me), to_(to.size()), from_(to.size()) {
  std::vector<std::size_t> first(to.size() + 1);
  for (RankId rank : indices<RankId>(to.size())) {
    const Message message = to[rank.offset()];
    const std::int32_t rows = message.empty() ? 0 : message[0];
    first[rank.offset() + 1] = first[rank.offset()] + static_cast<std::size_t>(rows);
    forwarding_->direct_out.push_back({0, rows});
    for (std::int32_t row = 0; row < rows; ++row) new_rows_.push_back(row);
    if (nodes.may_forward(rank, me)) from_[rank.offset()].resize(longer(from[rank.offset()], me));
  }
  const auto part = [&](std::span<std::int32_t> all, RankId rank) {
    return all.subspan(first[rank.offset()], first[rank.offset() + 1] - first[rank.offset()]);
  };
  std::vector<std::uint32_t> needed_by(static_cast<std::size_t>(tokens));  // bit mask by index in the node
  for (int node = 0; node < nodes.num_nodes(); ++node) {
    if (!nodes.may_forward(me, nodes.members(node).front())) continue;
    std::ranges::fill(needed_by, 0U);
    for (RankId rank : nodes.members(node))
      for (std::int32_t token : part(row_tokens, rank))
        needed_by[static_cast<std::size_t>(token)] |= 1U << nodes.index_in_node(rank);
    for (RankId rank : nodes.members(node))
      if (const Message message = to[rank.offset()]; !message.empty())
        order_rows(rank, message, needed_by, part(row_tokens, rank), part(new_rows_, rank));
  }
}

std::size_t ForwardingRoutes::longer(Message message, RankId to) const {
  return message.empty() ? 0 : 2 * message.size() - 1 + nodes_.members(nodes_.node_of(to)).size();
}

void ForwardingRoutes::order_rows(RankId rank, Message message, std::span<const std::uint32_t> needed_by,
                                  std::span<std::int32_t> tokens, std::span<std::int32_t> new_row) {
  const int index = nodes_.index_in_node(rank);
  const auto gateway_of = [&](std::int32_t token) {
    return Nodes::gateway(needed_by[static_cast<std::size_t>(token)], nodes_.index_in_node(me_));
  };
  std::vector<std::int32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int32_t row) {
    const std::int32_t token = tokens[static_cast<std::size_t>(row)];
    return std::pair(gateway_of(token), token);
  });
  const std::vector<std::int32_t> before(tokens.begin(), tokens.end());
  std::vector<std::int32_t>& out = to_[rank.offset()];
  out.resize(longer(message, rank));
  const std::size_t members = nodes_.members(nodes_.node_of(rank)).size();
  const std::span<std::int32_t> by_gateway(out.data() + message.size(), members);
  std::int32_t* wanted = out.data() + message.size() + members;
  for (std::size_t i = 0; i < order.size(); ++i) {
    tokens[i] = before[static_cast<std::size_t>(order[i])];
    new_row[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
    const int gateway = gateway_of(tokens[i]);
    ++by_gateway[static_cast<std::size_t>(gateway)];
    if (gateway == index)
      *wanted++ = static_cast<std::int32_t>(needed_by[static_cast<std::size_t>(tokens[i])]);
  }
  out[0] = message[0];
  std::ranges::transform(message.subspan(1), out.begin() + 1,
                         [&](std::int32_t row) { return new_row[static_cast<std::size_t>(row)]; });
  forwarding_->direct_out[rank.offset()] = range_of(by_gateway, index);
}

std::shared_ptr<const NodeForwarding> ForwardingRoutes::find(const Dispatched& made) {
  std::vector<NodeForwarding> by_member(nodes_.members(nodes_.node_of(me_)).size());
  for (RankId rank : indices<RankId>(to_.size())) take_from(rank, made, by_member);
  for (NodeForwarding& member : by_member) {
    for (NodeForwarding::Rows each : member.sends) {
      each.range.begin += std::ssize(forwarding_->forwarded_rows);
      forwarding_->sends.push_back(each);
    }
    forwarding_->forwarded_rows.insert(forwarding_->forwarded_rows.end(), member.forwarded_rows.begin(),
                                       member.forwarded_rows.end());
  }
  return std::move(forwarding_);
}

// Reads the message from a rank of another node. Finds the rows that it sends here directly, the rows to
// forward to each rank of this node, and the rows that arrive here through each rank of this node.
void ForwardingRoutes::take_from(RankId rank, const Dispatched& made,
                                 std::vector<NodeForwarding>& by_member) {
  const Dispatched::Peer peer = made.peer(rank);
  forwarding_->direct_in.push_back({0, peer.in_rows});
  const Message message = from_[rank.offset()];
  if (message.empty()) return;
  const auto members = nodes_.members(nodes_.node_of(me_));
  const Message behind = message.subspan(static_cast<std::size_t>(peer.in_positions) + 1);
  const Message by_gateway = behind.first(members.size()), wanted = behind.subspan(members.size());
  EVENKEEL_CHECK(std::accumulate(by_gateway.begin(), by_gateway.end(), std::int64_t{0}) == peer.in_rows);
  const RowRange direct = forwarding_->direct_in.back() = range_of(by_gateway, nodes_.index_in_node(me_));
  for (std::size_t index = 0; index < members.size(); ++index) {
    if (members[index] == me_) continue;
    const RowRange range = range_of(by_gateway, static_cast<int>(index));
    const std::int64_t begin = received_row(made, peer.in_row + range.begin);
    if (range.count > 0) forwarding_->receives.push_back({members[index], {begin, range.count}});
    std::vector<std::int32_t>& rows = by_member[index].forwarded_rows;
    const std::int64_t before = std::ssize(rows);
    for (std::int64_t i = 0; i < direct.count; ++i)
      if ((static_cast<std::uint32_t>(wanted[static_cast<std::size_t>(i)]) >> index & 1U) != 0)
        rows.push_back(static_cast<std::int32_t>(received_row(made, peer.in_row + direct.begin + i)));
    if (std::ssize(rows) > before)
      by_member[index].sends.push_back({members[index], {before, std::ssize(rows) - before}});
  }
}

}  // namespace evenkeel
