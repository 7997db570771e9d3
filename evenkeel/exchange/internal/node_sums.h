// Sums made in each node before they cross a link: what dispatch sent out as one row comes home as one row.
//
// Method   Each rank holds, for every row it received, the f32 sum of what it computed from that row. Sums of
//          rows that a gateway forwarded return to the gateway, which adds them to its own. Then every row
//          returns to the rank that sent it. A sum is rounded to the row type for each message.
// Order    Sums are added by expert on a rank, then by index in the node, then by rank at home. The plan
//          decides which rank computes what, so it also decides the last bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/base/data_type.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/exchange/internal/node_forwarding.h"

namespace evenkeel {

class Slices;

class NodeSums {
 public:
  // `dispatched` and `forwarding`, which belongs to it, must outlive this object.
  NodeSums(const Dispatched& dispatched, const NodeForwarding& forwarding, Arena& arena, std::int64_t hidden,
           DataType type);

  // Collective in the node. `sums` holds the rows received, f32; with `has_own`, this rank's own rows as
  // well.
  void add_in_node(Slices& slices, Stream& stream, float* sums, bool has_own, const char* name);
  // Queues sends of the rows that return from here, and receives into `home` of the rows that come home, by
  // rank. This object must outlive the operation.
  void queue(Slices& slices, std::span<std::byte> home) const;
  // A token's rows among those that come home.
  std::span<const std::int32_t> rows_of(std::int64_t token) const;

 private:
  void number_home_rows();
  std::int64_t row_bytes() const { return hidden_ * bytes_of(type_); }
  std::span<std::byte> rows_in(std::span<std::byte> all, RowRange range) const {
    return all.subspan(static_cast<std::size_t>(range.begin * row_bytes()),
                       static_cast<std::size_t>(range.count * row_bytes()));
  }

  const Dispatched& dispatched_;
  const NodeForwarding& forwarding_;
  Arena& arena_;
  std::int64_t hidden_;
  DataType type_;
  std::vector<std::size_t> first_row_;   // [tokens + 1] in home_rows_
  std::vector<std::int32_t> home_rows_;  // by token
  Buffer returning_;                     // rows that return from here, by rank
};

}  // namespace evenkeel
