// One rank's part of a step between processes: what it sends, receives, borrows and lends, as flat arrays
// that a framework's collectives and gathers take as they are.
//
// Problem    A step plan says how many assignments of which expert each rank computes. A framework needs
//            split sizes and indices: which rows go where, which positions they serve, in which order results
//            come back.
// Method     The deal's pieces (plan/deal.h), then one pass over this rank's assignments in their order.
// Words      A position is one assignment where it is computed. A row is one token's hidden state: it goes to
//            another rank once, however many of its positions are there. What stays on this rank is not sent.
// Order      Sent positions: by destination, expert, token and place in the top-k. Received: by source, then
//            the same. Computed: experts at home first, then borrowed ones, by slot; within a slot this
//            rank's own, then by source.
// Cost       O(assignments of this rank + positions here + P E). The rows that other ranks send are not known
//            from the counts; their number travels with the positions (see row_of).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

struct StepRoutes {
  // Rows sent: tokens, ascending for each destination; how many to each rank.
  std::vector<std::int64_t> sent_rows;
  std::vector<std::int64_t> sent_row_counts;  // [P]

  // Positions sent: assignments (token * k + place); for each destination the number of its rows, then for
  // each position which of these rows it reads. That is the message with which rows are found where they
  // arrive: to each rank it is sent_counts + 1 numbers long.
  std::vector<std::int64_t> sent_positions;
  std::vector<std::int64_t> row_of;           // [P + positions sent], with one number to this rank: 0
  std::vector<std::int64_t> sent_counts;      // [P]
  std::vector<std::int64_t> received_counts;  // [P] positions

  // Positions computed here. They are numbered: this rank's own first, then those received. `order` lists
  // these numbers in the order in which they are computed, `computed_at` is its inverse, and `slots` says by
  // which expert: 0..natives-1 are the experts at home, ascending; natives + i is borrowed[i].
  std::vector<std::int64_t> own_positions;  // assignments
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> computed_at;
  std::vector<std::int64_t> slots;
  std::int64_t native_positions = 0;  // how many of `order` are of experts at home

  // Weights: experts received, by source then id, and how many of each rank; slots of experts sent, by
  // destination then id, and how many to each.
  std::vector<std::int64_t> borrowed;
  std::vector<std::int64_t> borrowed_counts;  // [P]
  std::vector<std::int64_t> lent;
  std::vector<std::int64_t> lent_counts;  // [P]

  // Where each assignment's result is among these: results of sent positions, then of own_positions, then one
  // row of zeros, which those without an expert take.
  std::vector<std::int64_t> result_of;  // [tokens * k]

  // Whether any rank lends weights: the same on every rank.
  bool moves_weights = false;

  // Known when other ranks' row_of have arrived, which find_rows() takes in order of ranks: how many rows
  // each sends, and for each position in the order of computing which row it reads of these: this rank's
  // tokens, then the rows received. Throws InvalidArgument where they are not what such ranks send.
  void find_rows(std::span<const std::int64_t> arrived, int k);
  std::vector<std::int64_t> received_row_counts;  // [P]
  std::vector<std::int64_t> pool_rows;            // [positions here]
};

class StepRouter {
 public:
  // `experts` are this rank's choices, [tokens * k], -1 for none, which `counts` must count in row `me`.
  // Throws InvalidArgument where they do not. Routes that are used again keep their memory.
  void route(std::span<const std::int64_t> experts, int k, const Counts& counts, const StepPlan& plan,
             const LayerPlacement& placement, RankId me, StepRoutes& routes);

 private:
  // Where an expert's next assignment goes.
  struct Cursor {
    std::int64_t left = 0;      // of its piece of the deal
    std::int64_t position = 0;  // among those sent, or this rank's own
    RankId to;
    std::size_t piece = 0;
  };
  void find_slots(const LayerPlacement& placement, const StepPlan& plan, StepRoutes& routes);
  void find_offsets(const StepRoutes& routes);
  void make_space(std::size_t assignments, std::int64_t tokens, StepRoutes& routes);
  void send(std::span<const std::int64_t> experts, int k, StepRoutes& routes);
  void advance(ExpertId expert, Cursor& cursor) const;
  void close_gaps(StepRoutes& routes) const;
  void order_positions(StepRoutes& routes);

  RankId me_;
  Deal deal_;
  std::vector<std::int64_t> slot_of_;     // [E], -1 for experts not computed here
  std::vector<std::int64_t> first_;       // [pieces] where a piece's first position goes
  std::vector<std::size_t> piece_begin_;  // [E + 1] into first_
  std::vector<Cursor> cursors_;           // [E]
  std::vector<std::int64_t> last_token_;  // [P] sent to that rank
  std::vector<std::int64_t> row_begin_;   // [P] into sent_rows while it has gaps
  std::vector<std::int64_t> offsets_;     // [P] running
  std::vector<std::int64_t> begin_;       // [experts here][P] of positions here
  std::vector<std::size_t> by_slot_;      // experts here
};

}  // namespace evenkeel
