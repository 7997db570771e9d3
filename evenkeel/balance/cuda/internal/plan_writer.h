// From what stays on slots and what moves to a step plan: segments, transfers, rank loads.
//
// Cost  O((E + P + S) M / lanes) for M moves.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_room.h"

namespace evenkeel::cuda {

// How a planner orders what it gives. Least-loaded gives copy by copy, experts by load; level an expert's
// copies first, experts by id.
enum class GivingOrder { by_copy, copies_first };

template <class Team>
class PlanWriter {
 public:
  // `flags` has a place for each move.
  EVENKEEL_HOST_DEVICE PlanWriter(const Team& team, const PlacementView& homes, const std::int32_t* rest,
                                  const MoveList& moves, GivingOrder order, std::int32_t* flags)
      : team_(team), homes_(homes), rest_(rest), moves_(moves), order_(order), flags_(flags) {}

  EVENKEEL_HOST_DEVICE void write(const PlanView& plan) const {
    const int experts = homes_.num_experts;
    team_.for_each(experts, [&](int e) { plan.segment_begin[e] = count_segments(e); });
    team_.for_each(moves_.count, [&](int m) { flags_[m] = is_transfer(m) ? 1 : 0; });
    const std::int32_t all = exclusive_scan(team_, plan.segment_begin, experts);
    team_.for_each(1, [&](int) { plan.segment_begin[experts] = all; });
    team_.for_each(experts, [&](int e) { write_segments(e, plan); });
    team_.for_each(moves_.count, [&](int m) { write_transfer(m, plan); });
    team_.for_each(homes_.num_ranks, [&](int r) { plan.rank_loads[r] = load_of(r); });
    const int transfers = team_.sum(count_own_flags());
    team_.for_each(1, [&](int) { *plan.num_transfers = transfers; });
    team_.sync();
  }

 private:
  EVENKEEL_HOST_DEVICE int expert_of(int move) const { return homes_.slot_expert[moves_.slot[move]]; }

  EVENKEEL_HOST_DEVICE int count_segments(int expert) const {
    int segments = 0;
    for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i)
      segments += rest_[homes_.copies[i]] > 0 ? 1 : 0;
    for (int m = 0; m < moves_.count; ++m) segments += is_real(m) && expert_of(m) == expert ? 1 : 0;
    return segments;
  }

  EVENKEEL_HOST_DEVICE void write_segments(int expert, const PlanView& plan) const {
    int at = plan.segment_begin[expert];
    std::int32_t end = 0;
    const auto give = [&](std::int32_t rank, std::int32_t count) {
      if (count <= 0) return;
      plan.segment_rank[at] = rank;
      plan.segment_end[at] = end += count;
      ++at;
    };
    const auto give_moves = [&](const auto& mine) {
      for (int m = 0; m < moves_.count; ++m)
        if (mine(m)) give(moves_.to[m], moves_.amount[m]);
    };
    for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i) {
      const int slot = homes_.copies[i];
      give(homes_.slot_rank[slot], rest_[slot]);
      if (order_ == GivingOrder::by_copy) give_moves([&](int m) { return moves_.slot[m] == slot; });
    }
    if (order_ == GivingOrder::copies_first) give_moves([&](int m) { return expert_of(m) == expert; });
  }

  // A move of nothing, as an expert without assignments can make, is none.
  EVENKEEL_HOST_DEVICE bool is_real(int move) const { return moves_.amount[move] > 0; }

  // The first piece of an expert on a rank without a copy.
  EVENKEEL_HOST_DEVICE bool is_transfer(int move) const {
    if (!is_real(move)) return false;
    const int expert = expert_of(move);
    for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i)
      if (homes_.slot_rank[homes_.copies[i]] == moves_.to[move]) return false;
    for (int m = 0; m < move; ++m)
      if (is_real(m) && moves_.to[m] == moves_.to[move] && expert_of(m) == expert) return false;
    return true;
  }

  EVENKEEL_HOST_DEVICE void write_transfer(int move, const PlanView& plan) const {
    if (flags_[move] == 0) return;
    const int expert = expert_of(move);
    int at = 0;
    for (int m = 0; m < moves_.count; ++m) {
      const bool by_id = order_ == GivingOrder::copies_first && expert_of(m) != expert;
      const bool before = by_id ? expert_of(m) < expert : m < move;
      at += flags_[m] != 0 && before ? 1 : 0;
    }
    plan.transfer_expert[at] = expert;
    plan.transfer_from[at] = homes_.slot_rank[homes_.copies[homes_.copies_begin[expert]]];
    plan.transfer_to[at] = moves_.to[move];
  }

  EVENKEEL_HOST_DEVICE std::int32_t load_of(int rank) const {
    std::int32_t load = 0;
    for (int s = homes_.slot_begin[rank]; s < homes_.slot_begin[rank + 1]; ++s) load += rest_[s];
    for (int m = 0; m < moves_.count; ++m) load += moves_.to[m] == rank ? moves_.amount[m] : 0;
    return load;
  }

  EVENKEEL_HOST_DEVICE int count_own_flags() const {
    int own = 0;
    team_.for_each(moves_.count, [&](int m) { own += flags_[m]; });
    return own;
  }

  const Team& team_;
  const PlacementView& homes_;
  const std::int32_t* rest_;
  const MoveList& moves_;
  GivingOrder order_;
  std::int32_t* flags_;
};

}  // namespace evenkeel::cuda
