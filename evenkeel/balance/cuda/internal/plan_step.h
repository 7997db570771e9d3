// A step planned by one team: from the counts of all ranks to the step plan, with the integers of the
// planners of balance/ (ep, least_loaded, level).
//
// Method  What goes over experts, slots or moves is shared out over the team; the greedy decisions,
//         each of which needs the one before, are made by its leading lanes.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/expert_order.h"
#include "evenkeel/balance/cuda/internal/free_moves.h"
#include "evenkeel/balance/cuda/internal/least_loaded.h"
#include "evenkeel/balance/cuda/internal/level.h"
#include "evenkeel/balance/cuda/internal/local_rows.h"
#include "evenkeel/balance/cuda/internal/plan_writer.h"
#include "evenkeel/balance/cuda/rules.h"

namespace evenkeel::cuda {

template <class Team>
class StepPlanning {
 public:
  // `counts` [P][E]; `base_load` [P], or null for none.
  EVENKEEL_HOST_DEVICE StepPlanning(const Team& team, const PlacementView& homes, const PlanRules& rules,
                                    const std::int32_t* counts, const std::int32_t* base_load,
                                    PlannerRoom room)
      : team_(team), homes_(homes), rules_(rules), counts_(counts), base_load_(base_load), room_(room) {}

  EVENKEEL_HOST_DEVICE void plan(const PlanView& plan) {
    sum_loads();
    team_.for_each(1, [&](int) { *plan.gave_way = 0; });
    plan_freely(plan);
    if (rules_.kind == PlannerOptions::Kind::ep || most_borrowed(plan) <= rules_.most_borrowed) return;
    keep_home(plan);
    team_.for_each(1, [&](int) { *plan.gave_way = 1; });
    team_.sync();
  }

 private:
  EVENKEEL_HOST_DEVICE void plan_freely(const PlanView& plan) {
    switch (rules_.kind) {
      case PlannerOptions::Kind::ep:
        return keep_home(plan);
      case PlannerOptions::Kind::least_loaded:
        return plan_least_loaded(plan);
      case PlannerOptions::Kind::level:
        return plan_level(plan);
    }
  }

  // By any rank.
  EVENKEEL_HOST_DEVICE std::int32_t most_borrowed(const PlanView& plan) const {
    return largest(homes_.num_ranks, [&](int r) {
      std::int32_t count = 0;
      for (int t = 0; t < *plan.num_transfers; ++t) count += plan.transfer_to[t] == r ? 1 : 0;
      return count;
    });
  }

  EVENKEEL_HOST_DEVICE std::int32_t base(int rank) const {
    return base_load_ == nullptr ? 0 : base_load_[rank];
  }
  EVENKEEL_HOST_DEVICE std::int32_t even_share(int slot) const {
    const int expert = homes_.slot_expert[slot];
    return share_of_copy(room_.load[expert], copies_of(homes_, expert), homes_.slot_copy[slot]);
  }
  template <class Value>
  EVENKEEL_HOST_DEVICE std::int32_t largest(int n, const Value& value) const {
    std::int32_t own = 0;  // no value here is below
    team_.for_each(n, [&](int i) { own = value(i) > own ? value(i) : own; });
    return team_.max(own);
  }
  template <class Value>
  EVENKEEL_HOST_DEVICE std::int64_t total(int n, const Value& value) const {
    std::int64_t own = 0;
    team_.for_each(n, [&](int i) { own += value(i); });
    return team_.sum(own);
  }

  // Loads of experts, shares of slots, and what each rank has at home with its base load.
  EVENKEEL_HOST_DEVICE void sum_loads() {
    team_.for_each(homes_.num_experts, [&](int e) {
      std::int32_t load = 0;
      for (int r = 0; r < homes_.num_ranks; ++r) load += counts_[r * homes_.num_experts + e];
      room_.load[e] = load;
    });
    team_.sync();
    team_.for_each(homes_.num_slots, [&](int s) { room_.share[s] = even_share(s); });
    team_.sync();
    add_up(room_.share, room_.home_load);
    assignments_ = total(homes_.num_experts, [&](int e) { return room_.load[e]; });
    all_work_ = assignments_ + total(homes_.num_ranks, [&](int r) { return base(r); });
  }

  EVENKEEL_HOST_DEVICE void add_up(const std::int32_t* share, std::int32_t* by_rank) {
    team_.for_each(homes_.num_ranks, [&](int r) {
      std::int32_t load = base(r);
      for (int s = homes_.slot_begin[r]; s < homes_.slot_begin[r + 1]; ++s) load += share[s];
      by_rank[r] = load;
    });
    team_.sync();
  }

  EVENKEEL_HOST_DEVICE void write(const std::int32_t* rest, const MoveList& moves, GivingOrder order,
                                  std::int32_t* flags, const PlanView& plan) {
    PlanWriter<Team>(team_, homes_, rest, moves, order, flags).write(plan);
  }

  EVENKEEL_HOST_DEVICE void keep_home(const PlanView& plan) {
    room_.moves.count = 0;
    team_.for_each(homes_.num_slots, [&](int s) { room_.share[s] = even_share(s); });
    team_.sync();
    write(room_.share, room_.moves, GivingOrder::by_copy, room_.best.slot, plan);
  }

  EVENKEEL_HOST_DEVICE bool too_few() const {
    return homes_.num_ranks == 1 || assignments_ < homes_.num_ranks;
  }

  EVENKEEL_HOST_DEVICE void plan_least_loaded(const PlanView& plan) {
    const std::int64_t most = largest(homes_.num_experts, [&](int e) { return room_.load[e]; });
    const bool is_even =
        most * homes_.num_experts * 1000 < rules_.imbalance_threshold_thousandths * assignments_;
    if (too_few() || is_even) return keep_home(plan);
    spread_least_loaded(rules_.capacity_factor_thousandths);
    write_least_loaded(plan);
  }

  // Into room.kept, room.moves and room.committed.
  EVENKEEL_HOST_DEVICE void spread_least_loaded(std::int64_t factor_thousandths) {
    const std::int64_t exact = factor_thousandths * all_work_ / (std::int64_t{1000} * homes_.num_ranks);
    const auto capacity = static_cast<std::int32_t>(exact < kMostLoad ? exact : kMostLoad);
    team_.for_each(homes_.num_slots, [&](int s) { room_.kept[s] = even_share(s); });
    team_.sync();
    add_up(room_.kept, room_.committed);
    const auto first_share = [&](int e) { return share_of_copy(room_.load[e], copies_of(homes_, e), 0); };
    order_experts(team_, homes_.num_experts, first_share, room_.order);
    lead(team_, [&](const auto& lanes) {
      using Lanes = std::remove_cvref_t<decltype(lanes)>;
      room_.moves.count = 0;
      LeastLoaded<Lanes>(lanes, homes_, room_.order, room_.committed, room_.kept, room_.moves, capacity,
                         rules_.min_segment)
          .assign_all();
      lanes.once([&] { room_.verdict[0] = room_.moves.count; });
    });
    room_.moves.count = room_.verdict[0];
  }

  EVENKEEL_HOST_DEVICE void write_least_loaded(const PlanView& plan) {
    write(room_.kept, room_.moves, GivingOrder::by_copy, room_.best.slot, plan);
  }

  EVENKEEL_HOST_DEVICE void plan_level(const PlanView& plan) {
    const std::int64_t most = largest(homes_.num_ranks, [&](int r) { return room_.home_load[r]; });
    if (most * homes_.num_ranks * 1000 < rules_.imbalance_threshold_thousandths * all_work_)
      return keep_home(plan);
    const auto mean =
        static_cast<std::int32_t>(all_work_ / homes_.num_ranks + (all_work_ % homes_.num_ranks != 0 ? 1 : 0));
    const std::int32_t base_most = largest(homes_.num_ranks, [&](int r) { return base(r); });
    const std::int32_t ideal = mean > base_most ? mean : base_most;
    const std::int32_t worst = settle(ideal);
    if (worst != ideal && least_loaded_is_lower(worst)) return write_least_loaded(plan);
    take_local_rows();
    write(room_.rest, room_.best, GivingOrder::copies_first, room_.moves.slot, plan);
  }

  // Into room.best; returns its worst rank.
  EVENKEEL_HOST_DEVICE std::int32_t settle(std::int32_t ideal) {
    lead(team_, [&](const auto& lanes) {
      using Lanes = std::remove_cvref_t<decltype(lanes)>;
      if (homes_.num_slots != homes_.num_experts)
        lanes.once([&] { FreeMoves(homes_, room_.share, room_.home_load, room_.queue, ideal).level(); });
      const std::int32_t worst = Level<Lanes>(lanes, homes_, room_, rules_.min_segment).search_worst(ideal);
      lanes.once([&] {
        room_.verdict[1] = worst;
        room_.verdict[2] = room_.best.count;
      });
    });
    room_.best.count = room_.verdict[2];
    return room_.verdict[1];
  }

  // Its last piece of an expert may be smaller than min_segment, so it can be lower where pieces are large.
  EVENKEEL_HOST_DEVICE bool least_loaded_is_lower(std::int32_t worst) {
    if (too_few()) {
      team_.for_each(homes_.num_slots, [&](int s) { room_.kept[s] = even_share(s); });
      team_.sync();
      add_up(room_.kept, room_.committed);
      room_.moves.count = 0;
    } else {
      spread_least_loaded(1000);
    }
    return largest(homes_.num_ranks, [&](int r) { return room_.committed[r]; }) < worst;
  }

  EVENKEEL_HOST_DEVICE void take_local_rows() {
    team_.for_each(homes_.num_slots, [&](int s) {
      std::int32_t rest = room_.share[s];
      for (int m = 0; m < room_.best.count; ++m) rest -= room_.best.slot[m] == s ? room_.best.amount[m] : 0;
      room_.rest[s] = rest;
    });
    lead(team_, [&](const auto& lanes) {
      using Lanes = std::remove_cvref_t<decltype(lanes)>;
      LocalRows<Lanes>(lanes, homes_, counts_, room_.load, rules_.min_segment, room_.rest, room_.best)
          .improve_all();
    });
  }

  const Team& team_;
  const PlacementView& homes_;
  const PlanRules& rules_;
  const std::int32_t* counts_;
  const std::int32_t* base_load_;
  PlannerRoom room_;
  std::int64_t assignments_ = 0;
  std::int64_t all_work_ = 0;
};

}  // namespace evenkeel::cuda
