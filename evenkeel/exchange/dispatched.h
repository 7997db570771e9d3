// The result of dispatch: the rows received by this rank, and the tables that lead results and gradients
// back. Lives from dispatch to the last use, forward or backward.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "evenkeel/base/index.h"
#include "evenkeel/base/matrix_view.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/plan/chunk_buffers.h"

namespace evenkeel {

struct NodeForwarding;

// Numbering. "Here" is what this rank computes for all source ranks, itself included. A row is a token's
// hidden state on a rank, stored once for all its experts there; a position is an assignment.
//   rows here        in order of source rank; this rank's own stay in the caller's memory
//   positions here   two orders: by expert, then source (used by ExpertGroup and input_row), and by source,
//                    then expert (output_row: the order in which results are sent back)
//   elsewhere        this rank's rows and positions on other ranks, in order of destination; they follow the
//                    rows and positions here, so that one buffer holds what is computed and what is received
class Dispatched {
 public:
  struct Group {
    ExpertId expert;
    std::int32_t begin = 0;  // positions, by expert
    std::int32_t end = 0;
  };
  // Where a peer's part begins and how long it is. The part of this rank itself is counted under "in".
  struct Peer {
    std::int64_t in_row = 0, in_rows = 0;
    std::int64_t in_position = 0, in_positions = 0;
    std::int64_t out_row = 0, out_rows = 0;  // index among rows elsewhere
    std::int64_t out_position = 0, out_positions = 0;
  };

  std::int64_t tokens = 0;
  int k = 0;
  std::int64_t rows_here = 0;
  std::int64_t own_row = 0;   // first of this rank's own rows among the rows here
  std::int64_t own_rows = 0;  // number of this rank's own rows here
  std::int64_t rows_elsewhere = 0;
  std::int64_t positions_here = 0;
  std::int64_t positions_elsewhere = 0;

  // The numbers that budget/ uses. Fields about split experts stay 0.
  ChunkLoad load() const {
    ChunkLoad load;
    load.tokens = tokens;
    load.assignments = std::ssize(row_tokens_);
    load.assignments_kept = load.assignments - positions_elsewhere;
    load.positions_here = positions_here;
    load.rows_here = rows_here;
    load.rows_received = rows_here - own_rows;
    load.rows_elsewhere = rows_elsewhere;
    load.groups = std::ssize(groups_);
    return load;
  }

  std::span<const Group> groups() const { return groups_; }
  Peer peer(RankId rank) const {
    const std::size_t next = rank.offset() + 1;
    const PeerBegin& at = peers_[rank.offset()];
    const PeerBegin end = next < peers_.size() ? peers_[next] : PeerBegin::past_all(*this);
    return {at.in_row,  end.in_row - at.in_row,   at.in_position,  end.in_position - at.in_position,
            at.out_row, end.out_row - at.out_row, at.out_position, end.out_position - at.out_position};
  }
  // By position here, in the order by expert.
  std::span<const std::int32_t> input_row() const { return input_row_; }
  std::span<const std::int32_t> output_row() const { return output_row_; }
  // By assignment (token, k) of this rank: the position of its result, and the row of its token on the rank
  // that computes it. row_slot() is set only for the token's first assignment on each rank. -1 means none.
  std::span<const std::int32_t> result_slot() const { return result_slot_; }
  std::span<const std::int32_t> row_slot() const { return row_slot_; }
  // The token of each row elsewhere, and of each of this rank's own rows here.
  std::span<const std::int32_t> token_elsewhere() const {
    return row_tokens_.first(static_cast<std::size_t>(rows_elsewhere));
  }
  std::span<const std::int32_t> token_here() const {
    return row_tokens_.subspan(static_cast<std::size_t>(rows_elsewhere), static_cast<std::size_t>(own_rows));
  }
  // The rows here: local ones from `by_token` (the input of dispatch()), remote ones as received.
  SplitRows rows(const void* by_token) const { return rows(by_token, rows_); }
  // The same for another table by token, whose remote rows are in `received`.
  SplitRows rows(const void* by_token, const Buffer& received) const {
    return {static_cast<const std::byte*>(by_token), token_here(), own_row, received.data()};
  }
  void release_rows() { rows_.release(); }

 private:
  friend class Exchange;
  friend class DispatchRoutes;
  // A peer's part ends where the next one's begins.
  struct PeerBegin {
    std::int32_t in_row = 0, in_position = 0, out_row = 0, out_position = 0;

    static PeerBegin past_all(const Dispatched& all) {
      return {static_cast<std::int32_t>(all.rows_here), static_cast<std::int32_t>(all.positions_here),
              static_cast<std::int32_t>(all.rows_elsewhere),
              static_cast<std::int32_t>(all.positions_elsewhere)};
    }
  };
  Buffer tables_;  // holds all tables below
  std::span<PeerBegin> peers_;
  std::span<Group> groups_;
  std::span<std::int32_t> input_row_, output_row_, result_slot_, row_slot_, row_tokens_;
  Buffer rows_;
  std::shared_ptr<const NodeForwarding> forwarding_;  // null with one level
};

}  // namespace evenkeel
