// The parts of tables that a rank sends to every other rank and takes in from it, collected for one
// operation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/exchange/dispatched.h"

namespace evenkeel {

// Elements [begin, begin + count) of a table.
template <class Byte>
std::span<Byte> slice(std::span<Byte> all, std::int64_t begin, std::int64_t count, std::int64_t bytes_each) {
  return all.subspan(static_cast<std::size_t>(begin * bytes_each),
                     static_cast<std::size_t>(count * bytes_each));
}

class Slices {
 public:
  // With space for what a step sends and receives at a time.
  explicit Slices(Communicator& comm);

  void send(RankId rank, std::span<const std::byte> bytes) { sends_.push_back({rank, bytes}); }
  void receive(RankId rank, std::span<std::byte> bytes) { receives_.push_back({rank, bytes}); }

  // A row of each token that another rank computes, packed, on their way there.
  void send_rows(const Dispatched& dispatched, std::span<const std::byte> packed, std::int64_t row_bytes);
  void receive_rows(const Dispatched& dispatched, std::span<std::byte> received, std::int64_t row_bytes);
  // Values by position, those elsewhere behind those here. The ones elsewhere travel there.
  void send_positions(const Dispatched& dispatched, std::span<const std::byte> all, std::int64_t bytes_each);
  void receive_positions(const Dispatched& dispatched, std::span<std::byte> all, std::int64_t bytes_each);
  // As above, on the way home; `row_of` says where in `all` a position's value is.
  template <class RowOf>
  void send_positions_home(const Dispatched& dispatched, std::span<const std::byte> all,
                           std::int64_t bytes_each, const RowOf& row_of) {
    for_each_peer(dispatched, [&](RankId rank, const Dispatched::Peer& peer) {
      send(rank, slice(all, row_of(peer.in_position), peer.in_positions, bytes_each));
    });
  }
  template <class RowOf>
  void receive_positions_home(const Dispatched& dispatched, std::span<std::byte> all, std::int64_t bytes_each,
                              const RowOf& row_of) {
    for_each_peer(dispatched, [&](RankId rank, const Dispatched::Peer& peer) {
      const std::int64_t elsewhere = dispatched.positions_here + peer.out_position;
      receive(rank, slice(all, row_of(elsewhere), peer.out_positions, bytes_each));
    });
  }
  // Rows on the way home: those here, of which `own` of this rank are left out of `all`, and behind them
  // those elsewhere.
  void send_rows_home(const Dispatched& dispatched, std::int64_t own, std::span<const std::byte> all,
                      std::int64_t row_bytes);
  void receive_rows_home(const Dispatched& dispatched, std::int64_t own, std::span<std::byte> all,
                         std::int64_t row_bytes);

  // Posts what was collected since, as one operation.
  Event post(Stream& stream, const char* name);

  const std::vector<RankId>& others() const { return others_; }

 private:
  template <class Body>
  void for_each_peer(const Dispatched& dispatched, const Body& body) const {
    for (RankId rank : others_) body(rank, dispatched.peer(rank));
  }
  // Where a peer's rows here begin in a table that leaves out `own` of this rank's.
  std::int64_t row_without(RankId rank, const Dispatched::Peer& peer, std::int64_t own) const {
    return peer.in_row - (rank > comm_.rank() ? own : 0);
  }

  Communicator& comm_;
  std::vector<RankId> others_;  // all ranks but this one
  std::vector<SendSlice> sends_;
  std::vector<ReceiveSlice> receives_;
};

}  // namespace evenkeel
