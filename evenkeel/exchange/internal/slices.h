// Collects the slices of arrays that a rank sends to and receives from every other rank, for one
// operation.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/exchange/dispatched.h"

namespace evenkeel {

class Slices {
 public:
  // Reserves space for the most slices of one operation: row gradients and router weight gradients.
  explicit Slices(Communicator& comm) : comm_(comm) {
    sends_.reserve(2 * static_cast<std::size_t>(comm.size()));
    receives_.reserve(sends_.capacity());
    for (RankId rank : indices<RankId>(comm.size()))
      if (rank != comm.rank()) others_.push_back(rank);
  }

  const std::vector<RankId>& others() const { return others_; }
  void send(RankId rank, std::span<const std::byte> bytes) { sends_.push_back({rank, bytes}); }
  void receive(RankId rank, std::span<std::byte> bytes) { receives_.push_back({rank, bytes}); }

  // `to_experts` moves rows to the ranks that compute them; `to_tokens` moves results back to their tokens.
  enum class Direction { to_experts, to_tokens };

  // Adds rows. `here` holds the rows here, except this rank's `own` rows; `elsewhere` holds the rows
  // elsewhere.
  void rows(Direction direction, const Dispatched& dispatched, std::span<std::byte> here, std::int64_t own,
            std::span<std::byte> elsewhere, std::int64_t row_bytes) {
    for (RankId rank : others_) {
      const Dispatched::Peer peer = dispatched.peer(rank);
      const std::int64_t in_row = peer.in_row - (rank > comm_.rank() ? own : 0);
      pass(direction, rank, slice(here, in_row, peer.in_rows, row_bytes),
           slice(elsewhere, peer.out_row, peer.out_rows, row_bytes));
    }
  }

  // Adds one value per position. `all` holds positions here, then elsewhere; row_of(position) is the index in
  // `all`.
  template <class RowOf = std::identity>
  void positions(Direction direction, const Dispatched& dispatched, std::span<std::byte> all,
                 std::int64_t bytes_each, const RowOf& row_of = {}) {
    for (RankId rank : others_) {
      const Dispatched::Peer peer = dispatched.peer(rank);
      const std::int64_t out_position = dispatched.positions_here + peer.out_position;
      pass(direction, rank, slice(all, row_of(peer.in_position), peer.in_positions, bytes_each),
           slice(all, row_of(out_position), peer.out_positions, bytes_each));
    }
  }

  // Posts the slices collected since the last call, as one operation.
  Event post(Stream& stream, const char* name) {
    const Event event = comm_.send_receive(sends_, receives_, stream, name);
    sends_.clear();
    receives_.clear();
    return event;
  }

 private:
  static std::span<std::byte> slice(std::span<std::byte> all, std::int64_t begin, std::int64_t count,
                                    std::int64_t bytes_each) {
    return all.subspan(static_cast<std::size_t>(begin * bytes_each),
                       static_cast<std::size_t>(count * bytes_each));
  }
  void pass(Direction direction, RankId rank, std::span<std::byte> here, std::span<std::byte> elsewhere) {
    send(rank, direction == Direction::to_experts ? elsewhere : here);
    receive(rank, direction == Direction::to_experts ? here : elsewhere);
  }

  Communicator& comm_;
  std::vector<RankId> others_;  // all ranks but this one
  std::vector<SendSlice> sends_;
  std::vector<ReceiveSlice> receives_;
};

}  // namespace evenkeel
