#include "evenkeel/exchange/internal/slices.h"

namespace evenkeel {

namespace {

// Row gradients and those of router weights go in one operation.
constexpr std::size_t kTablesAtOnce = 2;

}  // namespace

Slices::Slices(Communicator& comm) : comm_(comm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  sends_.reserve(kTablesAtOnce * ranks);
  receives_.reserve(kTablesAtOnce * ranks);
  others_.reserve(ranks);
  for (RankId rank : indices<RankId>(comm.size()))
    if (rank != comm.rank()) others_.push_back(rank);
}

Event Slices::post(Stream& stream, const char* name) {
  const Event event = comm_.send_receive(sends_, receives_, stream, name);
  sends_.clear();
  receives_.clear();
  return event;
}

void Slices::send_rows(const Dispatched& dispatched, std::span<const std::byte> packed,
                       std::int64_t row_bytes) {
  for_each_peer(dispatched, [&](RankId rank, const Dispatched::Peer& peer) {
    send(rank, slice(packed, peer.out_row, peer.out_rows, row_bytes));
  });
}

void Slices::receive_rows(const Dispatched& dispatched, std::span<std::byte> received,
                          std::int64_t row_bytes) {
  for_each_peer(dispatched, [&](RankId rank, const Dispatched::Peer& peer) {
    const std::int64_t row = row_without(rank, peer, dispatched.own_rows);
    receive(rank, slice(received, row, peer.in_rows, row_bytes));
  });
}

void Slices::send_positions(const Dispatched& dispatched, std::span<const std::byte> all,
                            std::int64_t bytes_each) {
  for_each_peer(dispatched, [&](RankId rank, const Dispatched::Peer& peer) {
    send(rank, slice(all, dispatched.positions_here + peer.out_position, peer.out_positions, bytes_each));
  });
}

void Slices::receive_positions(const Dispatched& dispatched, std::span<std::byte> all,
                               std::int64_t bytes_each) {
  for_each_peer(dispatched, [&](RankId rank, const Dispatched::Peer& peer) {
    receive(rank, slice(all, peer.in_position, peer.in_positions, bytes_each));
  });
}

void Slices::send_rows_home(const Dispatched& dispatched, std::int64_t own, std::span<const std::byte> all,
                            std::int64_t row_bytes) {
  for_each_peer(dispatched, [&](RankId rank, const Dispatched::Peer& peer) {
    send(rank, slice(all, row_without(rank, peer, own), peer.in_rows, row_bytes));
  });
}

void Slices::receive_rows_home(const Dispatched& dispatched, std::int64_t own, std::span<std::byte> all,
                               std::int64_t row_bytes) {
  for_each_peer(dispatched, [&](RankId rank, const Dispatched::Peer& peer) {
    receive(rank, slice(all, dispatched.rows_here - own + peer.out_row, peer.out_rows, row_bytes));
  });
}

}  // namespace evenkeel
