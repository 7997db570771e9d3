// One rank's part of a step between processes: what it sends, receives, borrows and lends, as flat arrays
// that a framework's collectives and gathers take as they are.
//
// Method     Numbers, order and cost are those of plan/routes.h.
// Order      Experts at home are computed first, then borrowed ones, by slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/routes.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// The weights that a rank borrows and lends under a plan: experts received, by source then id, and how many
// of each rank; slots of experts sent, by destination then id, and how many to each.
struct Loan {
  std::vector<std::int64_t> borrowed;
  std::vector<std::int64_t> borrowed_counts;  // [P]
  std::vector<std::int64_t> lent;
  std::vector<std::int64_t> lent_counts;  // [P]

  void read(std::span<const Transfer> transfers, const LayerPlacement& placement, RankId me);
};

// A step's routes as far as they are known before other ranks' messages are here.
struct StepRoutes : Loan {
  RankId me;

  // Rows sent: tokens; how many to each rank.
  std::vector<std::int64_t> sent_rows;
  std::vector<std::int64_t> sent_row_counts;  // [P]

  // The assignments (token * k + place) of the positions sent, then of this rank's own; and the messages, to
  // each rank sent_counts + 1 numbers long.
  std::vector<std::int64_t> assignments;
  std::vector<std::int64_t> row_of;           // [P + positions sent]
  std::vector<std::int64_t> sent_counts;      // [P], 0 for this rank
  std::vector<std::int64_t> received_counts;  // [P] positions, 0 for this rank
  std::span<const std::int64_t> sent_positions() const { return std::span(assignments).first(num_sent()); }
  std::span<const std::int64_t> own_positions() const { return std::span(assignments).subspan(num_sent()); }

  // Where each assignment's result is among these: results of sent positions, then of own_positions, then one
  // row of zeros, which those without an expert take.
  std::vector<std::int64_t> result_of;  // [tokens * k]

  // The experts computed here, ascending: their slots, where in the order of computing their positions begin,
  // and how many of these come from which rank. Slots 0..natives-1 are the experts at home, ascending;
  // natives + i is borrowed[i].
  struct Group {
    std::int64_t slot;
    std::int64_t begin;
  };
  std::vector<Group> groups;
  std::vector<std::int32_t> arrivals;  // [groups][P]
  std::int64_t native_positions = 0;   // how many of the positions here are of experts at home

  // Whether any rank lends weights: the same on every rank.
  bool moves_weights = false;

  std::size_t num_sent() const { return row_of.size() - sent_counts.size(); }
};

// The positions computed here. They are numbered: this rank's own first, then those received, by source.
struct ReceivedRoutes {
  std::vector<std::int64_t> row_counts;   // [P] rows that each rank sends
  std::vector<std::int64_t> order;        // the numbers in the order of computing
  std::vector<std::int64_t> computed_at;  // its inverse
  // In the order of computing: which row a position reads of this rank's tokens, then the rows received; and
  // the slot of its expert.
  std::vector<std::int64_t> pool_rows;
  std::vector<std::int64_t> slots;
};

class StepRouter {
 public:
  // `experts` are this rank's choices, [tokens * k], -1 for none, which `counts` must count in row `me`.
  // Throws InvalidArgument where they do not. Routes that are used again keep their memory.
  void send(std::span<const std::int64_t> experts, int k, const Counts& counts, const StepPlan& plan,
            const LayerPlacement& placement, RankId me, StepRoutes& routes);

 private:
  void find_slots(const LayerPlacement& placement, const StepPlan& plan, StepRoutes& routes);
  void find_groups(std::int64_t natives, StepRoutes& routes) const;

  Deal deal_;
  Router<std::int64_t> router_;
  std::vector<std::int64_t> slot_of_;  // [E], -1 for experts not computed here
  std::vector<std::int64_t> row_of_;   // [tokens]
};

// `arrived` are the other ranks' messages to `sent`'s rank, in order of ranks. Throws InvalidArgument where
// they are not what such ranks send.
void receive_routes(const StepRoutes& sent, std::span<const std::int64_t> arrived, int k,
                    ReceivedRoutes& received);

}  // namespace evenkeel
