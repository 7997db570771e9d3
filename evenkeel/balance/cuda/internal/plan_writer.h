// Writes a step plan (segments, transfers, rank loads) from what stays on slots and what moves.
//
// Method  The positions of a move's segment and transfer in the plan follow from the moves before it. For
//         each move, several lanes count these. Nothing is read back from the plan.
// Cost    O((E + P + S + M^2) / lanes) for M moves.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_buffers.h"
#include "evenkeel/device/cuda/team.h"

namespace evenkeel::cuda {

// The order of segments in a plan. Least-loaded takes experts by load, and writes the moves of each copy
// after that copy. Level takes experts by id, and writes all copies of an expert before its moves.
enum class GivingOrder { by_copy, copies_first };

// A planner's decision: the assignments that stay on slots, and the moves.
struct Draft {
  Array rest;      // [S], what stays on slots
  MoveList moves;  // not counted in `rest`
  GivingOrder order;
  MoveList spare;  // its arrays are free to use
};

template <class Team>
class PlanWriter {
 public:
  EVENKEEL_HOST_DEVICE PlanWriter(const Team& team, const PlannerBuffers& buffers, const Draft& draft)
      : team_(team),
        homes_(buffers.homes),
        draft_(draft),
        moves_(draft.moves),
        begin_(buffers.order),
        loads_(buffers.committed),
        borrowed_(buffers.queue),
        transfers_(buffers.verdict),
        owner_(draft.spare.slot),
        ahead_(draft.spare.to),
        start_(draft.spare.amount),
        is_none_(buffers.first_scratch),
        place_(buffers.second_scratch) {}

  EVENKEEL_HOST_DEVICE void write(const PlanView& plan) const {
    clear();
    count();
    const int experts = homes_.num_experts;
    const std::int32_t all = exclusive_scan(team_, &begin_[0], experts);
    share_out_in_parts(team_, moves_.count, [&](int m, int first, int step) { look_back(m, first, step); });
    share_out(team_, experts, [&](int e) { plan.segment_begin[e] = begin_[e]; });
    share_out(team_, homes_.num_slots, [&](int s) { write_stay(s, plan); });
    team_.sync();
    share_out_in_parts(team_, moves_.count, [&](int m, int first, int step) { find_place(m, first, step); });
    share_out(team_, moves_.count, [&](int m) { write_move(m, plan); });
    share_out(team_, homes_.num_ranks, [&](int r) { plan.rank_loads[r] = loads_[r]; });
    team_.sync();
    share_out(team_, moves_.count, [&](int m) { write_transfer(m, plan); });
    share_out(team_, 1, [&](int) {
      plan.segment_begin[experts] = all;
      *plan.num_transfers = transfers_[0];
    });
  }

  // The most experts that a rank borrows in the written plan.
  EVENKEEL_HOST_DEVICE std::int32_t most_borrowed() const {
    return lanes_of(team_).max(homes_.num_ranks, [&](int r) { return borrowed_[r]; });
  }

 private:
  EVENKEEL_HOST_DEVICE bool by_copy() const { return draft_.order == GivingOrder::by_copy; }
  // A move of 0 assignments, which an expert without assignments can make, does not count.
  EVENKEEL_HOST_DEVICE bool is_real(int move) const { return owner_[move] >= 0; }
  EVENKEEL_HOST_DEVICE bool is_transfer(int move) const { return is_none_[move] == 0; }
  EVENKEEL_HOST_DEVICE int copy_of(int move) const { return homes_.slot_copy[moves_.slot[move]]; }

  EVENKEEL_HOST_DEVICE void clear() const {
    team_.sync();
    share_out(team_, homes_.num_experts, [&](int e) { begin_[e] = 0; });
    share_out(team_, homes_.num_ranks, [&](int r) { loads_[r] = borrowed_[r] = 0; });
    share_out(team_, 1, [&](int) { transfers_[0] = 0; });
    team_.sync();
  }

  EVENKEEL_HOST_DEVICE void count() const {
    share_out(team_, homes_.num_slots, [&](int s) {
      const std::int32_t rest = draft_.rest[s];
      if (rest <= 0) return;
      add(&begin_[homes_.slot_expert[s]], 1);
      add(&loads_[homes_.slot_rank[s]], rest);
    });
    share_out(team_, moves_.count, [&](int m) {
      const int expert = homes_.slot_expert[moves_.slot[m]];
      const bool real = moves_.amount[m] > 0;
      owner_[m] = real ? expert : -1;
      ahead_[m] = start_[m] = place_[m] = 0;
      is_none_[m] = !real || has_copy(expert, moves_.to[m]) ? 1 : 0;
      if (!real) return;
      add(&begin_[expert], 1);
      add(&loads_[moves_.to[m]], moves_.amount[m]);
    });
  }
  EVENKEEL_HOST_DEVICE bool has_copy(int expert, int rank) const {
    for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i)
      if (homes_.slot_rank[homes_.copies[i]] == rank) return true;
    return false;
  }

  // Looks at every step-th move: counts those whose segments come before this move's, and whether the rank
  // has the expert already.
  EVENKEEL_HOST_DEVICE void look_back(int move, int first, int step) const {
    if (!is_real(move)) return;
    const int expert = owner_[move], slot = moves_.slot[move], to = moves_.to[move];
    std::int32_t ahead = 0, start = 0, same = 0;
    for (int m = first; m < moves_.count; m += step) {
      if (owner_[m] != expert) continue;
      const bool by_turn = !by_copy() || moves_.slot[m] == slot;
      if (by_turn ? m < move : copy_of(m) < copy_of(move)) {
        ++ahead;
        start += moves_.amount[m];
      }
      same += m < move && moves_.to[m] == to ? 1 : 0;
    }
    if (ahead != 0) add(&ahead_[move], ahead);
    if (start != 0) add(&start_[move], start);
    if (same != 0) add(&is_none_[move], same);
  }

  EVENKEEL_HOST_DEVICE static void write_segment(const PlanView& plan, int at, int rank, std::int32_t end) {
    plan.segment_rank[at] = rank;
    plan.segment_end[at] = end;
  }

  EVENKEEL_HOST_DEVICE void write_stay(int slot, const PlanView& plan) const {
    if (draft_.rest[slot] <= 0) return;
    const int expert = homes_.slot_expert[slot], copy = homes_.slot_copy[slot];
    int at = begin_[expert];
    std::int32_t end = draft_.rest[slot];
    pass_copies(expert, copy, at, end);
    if (copy > 0 && by_copy())
      for (int m = 0; m < moves_.count; ++m)
        if (owner_[m] == expert && copy_of(m) < copy) ++at, end += moves_.amount[m];
    write_segment(plan, at, homes_.slot_rank[slot], end);
  }
  EVENKEEL_HOST_DEVICE void write_move(int move, const PlanView& plan) const {
    if (!is_real(move)) return;
    const int expert = owner_[move];
    int at = begin_[expert] + ahead_[move];
    std::int32_t end = start_[move] + moves_.amount[move];
    pass_copies(expert, by_copy() ? copy_of(move) + 1 : homes_.copies_of(expert), at, end);
    write_segment(plan, at, moves_.to[move], end);
  }
  // Adds to `at` and `end` what stays on the expert's first copies.
  EVENKEEL_HOST_DEVICE void pass_copies(int expert, int copies, int& at, std::int32_t& end) const {
    EVENKEEL_NO_UNROLL
    for (int i = 0; i < copies; ++i) {
      const std::int32_t rest = draft_.rest[homes_.copies[homes_.copies_begin[expert] + i]];
      at += rest > 0 ? 1 : 0;
      end += rest > 0 ? rest : 0;
    }
  }

  // Counts the transfers that come before this move's, looking at every step-th move.
  EVENKEEL_HOST_DEVICE void find_place(int move, int first, int step) const {
    if (!is_transfer(move)) return;
    const int expert = owner_[move];
    std::int32_t before = 0;
    for (int m = first; m < moves_.count; m += step) {
      const bool by_id = !by_copy() && owner_[m] != expert;
      before += is_transfer(m) && (by_id ? owner_[m] < expert : m < move) ? 1 : 0;
    }
    if (before != 0) add(&place_[move], before);
    if (first != 0) return;
    add(&transfers_[0], 1);
    add(&borrowed_[moves_.to[move]], 1);
  }
  EVENKEEL_HOST_DEVICE void write_transfer(int move, const PlanView& plan) const {
    if (!is_transfer(move)) return;
    const int expert = owner_[move], at = place_[move];
    plan.transfer_expert[at] = expert;
    plan.transfer_from[at] = homes_.slot_rank[homes_.copies[homes_.copies_begin[expert]]];
    plan.transfer_to[at] = moves_.to[move];
  }

  const Team& team_;
  const Homes& homes_;
  const Draft& draft_;
  const MoveList& moves_;
  const Array begin_;      // [E], where segments begin
  const Array loads_;      // [P]
  const Array borrowed_;   // [P]
  const Array transfers_;  // [1]
  // One entry for each move. owner_: its expert, -1 for none. ahead_, start_: the number of the expert's
  // moves whose segments come before this move's, and their assignments. is_none_: above 0 if the move is no
  // transfer. place_: the number of transfers before this move's.
  const Array owner_;
  const Array ahead_;
  const Array start_;
  const Array is_none_;
  const Array place_;
};

}  // namespace evenkeel::cuda
