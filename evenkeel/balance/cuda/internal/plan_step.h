// Plans a step by one team, from the counts of all ranks to the step plan. The plan is identical to that of
// the CPU planners in balance/ (ep, least_loaded, level).
//
// Method  Loops over experts, slots or moves are divided over the team. Greedy decisions, each of which needs
//         the one before, are made by its leading lanes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "evenkeel/balance/cuda/internal/expert_order.h"
#include "evenkeel/balance/cuda/internal/free_moves.h"
#include "evenkeel/balance/cuda/internal/least_loaded.h"
#include "evenkeel/balance/cuda/internal/level.h"
#include "evenkeel/balance/cuda/internal/local_rows.h"
#include "evenkeel/balance/cuda/internal/plan_writer.h"
#include "evenkeel/balance/cuda/internal/step_loads.h"
#include "evenkeel/balance/cuda/rules.h"

namespace evenkeel::cuda {

template <class Team>
class StepPlanning {
 public:
  // Level reads the counts of every rank, in counts.sums.
  EVENKEEL_HOST_DEVICE StepPlanning(const Team& team, const PlanRules& rules, const StepCounts& counts,
                                    const PlannerBuffers& buffers)
      : team_(team), rules_(rules), counts_(counts), buffers_(buffers) {}

  // `base_load` [P], or null for none.
  EVENKEEL_HOST_DEVICE void plan(const PlacementView& homes, const std::int32_t* base_load,
                                 const PlanView& plan) {
    StepLoads<Team>(team_, buffers_).fill(homes, counts_, base_load, rules_.min_segment);
    all_work_ = lanes().sum(buffers_.homes.num_ranks, [&](int r) { return buffers_.home_load[r]; });
    assignments_ = all_work_ - lanes().sum(buffers_.homes.num_ranks, [&](int r) { return buffers_.base[r]; });
    Draft draft = draft_freely();
    for (bool fell_back_to_ep = false;; fell_back_to_ep = true) {
      const PlanWriter<Team> writer(team_, buffers_, draft);
      writer.write(plan);
      share_out(team_, 1, [&](int) { *plan.fell_back_to_ep = fell_back_to_ep ? 1 : 0; });
      if (fell_back_to_ep || draft.moves.count == 0 || writer.most_borrowed() <= rules_.most_borrowed) return;
      draft = all_at_home();
    }
  }

 private:
  // Lanes for computations that every warp repeats for itself.
  EVENKEEL_HOST_DEVICE auto lanes() const { return lanes_of(team_); }

  EVENKEEL_HOST_DEVICE Draft draft_freely() {
    switch (rules_.kind) {
      case PlannerOptions::Kind::ep:
        break;
      case PlannerOptions::Kind::least_loaded:
        return draft_least_loaded();
      case PlannerOptions::Kind::level:
        return draft_level();
    }
    return all_at_home();
  }

  EVENKEEL_HOST_DEVICE std::int32_t even_share(int slot) const {
    const int expert = buffers_.homes.slot_expert[slot];
    return share_of_copy(buffers_.load[expert], buffers_.homes.copies_of(expert),
                         buffers_.homes.slot_copy[slot]);
  }

  // Restores even shares, because level's free moves change them.
  EVENKEEL_HOST_DEVICE Draft all_at_home() {
    team_.sync();
    if (!buffers_.homes.has_single_homes())
      share_out(team_, buffers_.homes.num_slots, [&](int s) { buffers_.share[s] = even_share(s); });
    buffers_.moves.count = 0;
    return {buffers_.share, buffers_.moves, GivingOrder::by_copy, buffers_.best};
  }

  EVENKEEL_HOST_DEVICE bool too_few() const {
    return buffers_.homes.num_ranks == 1 || assignments_ < buffers_.homes.num_ranks;
  }

  EVENKEEL_HOST_DEVICE Draft draft_least_loaded() {
    const std::int64_t most =
        lanes().max(buffers_.homes.num_experts, [&](int e) { return buffers_.load[e]; });
    const bool is_even =
        most * buffers_.homes.num_experts * 1000 < rules_.imbalance_threshold_thousandths * assignments_;
    if (too_few() || is_even) return all_at_home();
    return spread_least_loaded(rules_.capacity_factor_thousandths);
  }

  // Fills buffers.kept with even shares, and buffers.committed with the loads of ranks under them.
  EVENKEEL_HOST_DEVICE void begin_at_home() {
    team_.sync();
    share_out(team_, buffers_.homes.num_ranks, [&](int r) { buffers_.committed[r] = buffers_.base[r]; });
    team_.sync();
    share_out(team_, buffers_.homes.num_slots, [&](int s) {
      buffers_.kept[s] = even_share(s);
      add(&buffers_.committed[buffers_.homes.slot_rank[s]], buffers_.kept[s]);
    });
    team_.sync();
    buffers_.moves.count = 0;
  }

  // Fills buffers.kept, buffers.moves and buffers.committed.
  EVENKEEL_HOST_DEVICE Draft spread_least_loaded(std::int64_t factor_thousandths) {
    const std::int64_t exact =
        factor_thousandths * all_work_ / (std::int64_t{1000} * buffers_.homes.num_ranks);
    const auto capacity = static_cast<std::int32_t>(exact < kMostLoad ? exact : kMostLoad);
    begin_at_home();
    order_by_load();
    lead(team_, [&](const auto& lanes) {
      using Lanes = std::remove_cvref_t<decltype(lanes)>;
      LeastLoaded<Lanes>(lanes, buffers_, capacity, rules_.min_segment).assign_all();
      lanes.once([&] { buffers_.verdict[0] = buffers_.moves.count; });
    });
    buffers_.moves.count = buffers_.verdict[0];
    return {buffers_.kept, buffers_.moves, GivingOrder::by_copy, buffers_.best};
  }

  // An expert with copies is ordered by the load of its first copy.
  EVENKEEL_HOST_DEVICE void order_by_load() {
    share_out(team_, buffers_.homes.num_experts, [&](int e) {
      buffers_.first_scratch[e] = share_of_copy(buffers_.load[e], buffers_.homes.copies_of(e), 0);
    });
    order_experts(team_, buffers_.homes.num_experts, buffers_.first_scratch, buffers_.second_scratch,
                  buffers_.order);
  }

  EVENKEEL_HOST_DEVICE Draft draft_level() {
    const int ranks = buffers_.homes.num_ranks;
    const std::int64_t most = lanes().max(ranks, [&](int r) { return buffers_.home_load[r]; });
    if (most * ranks * 1000 < rules_.imbalance_threshold_thousandths * all_work_) return all_at_home();
    const std::int32_t mean = all_work_ / ranks + (all_work_ % ranks != 0 ? 1 : 0);
    const std::int32_t base_most = lanes().max(ranks, [&](int r) { return buffers_.base[r]; });
    const std::int32_t ideal = mean > base_most ? mean : base_most;
    const std::int32_t worst = settle(ideal);
    if (worst != ideal && least_loaded_is_lower(worst))
      return {buffers_.kept, buffers_.moves, GivingOrder::by_copy, buffers_.best};
    // If `worst` is `ideal`, that target was settled last, and buffers.rest holds what it left on slots.
    if (worst != ideal) leave_rest();
    take_local_rows();
    return {buffers_.rest, buffers_.best, GivingOrder::copies_first, buffers_.moves};
  }

  // Fills buffers.best; returns its worst rank load. Meanwhile the other threads sum the counts for
  // take_local_rows().
  EVENKEEL_HOST_DEVICE std::int32_t settle(std::int32_t ideal) {
    const auto search = [&](const auto& lanes) {
      using Lanes = std::remove_cvref_t<decltype(lanes)>;
      if (!buffers_.homes.has_single_homes())
        lanes.once([&] {
          FreeMoves(buffers_.homes, buffers_.share, buffers_.home_load, buffers_.queue, ideal).level();
        });
      const std::int32_t worst =
          Level<Lanes>(lanes, buffers_, all_work_, rules_.min_segment).search_worst(ideal);
      lanes.once([&] {
        buffers_.verdict[1] = worst;
        buffers_.verdict[2] = buffers_.best.count;
      });
    };
    lead(team_, search, [&](int first, int step) {
      counts_.add_up(first, step, buffers_.homes.num_ranks * buffers_.homes.num_experts);
    });
    buffers_.best.count = buffers_.verdict[2];
    return buffers_.verdict[1];
  }

  // Least-loaded's last piece of an expert may be below min_segment, so its worst rank can be lower.
  EVENKEEL_HOST_DEVICE bool least_loaded_is_lower(std::int32_t worst) {
    if (too_few())
      begin_at_home();
    else
      spread_least_loaded(1000);
    return lanes().max(buffers_.homes.num_ranks, [&](int r) { return buffers_.committed[r]; }) < worst;
  }

  // Fills buffers.rest with what stays on slots beside buffers.best.
  EVENKEEL_HOST_DEVICE void leave_rest() {
    const MoveList& moves = buffers_.best;
    share_out(team_, buffers_.homes.num_slots, [&](int s) { buffers_.rest[s] = buffers_.share[s]; });
    team_.sync();
    share_out(team_, moves.count, [&](int m) { add(&buffers_.rest[moves.slot[m]], -moves.amount[m]); });
    team_.sync();
  }
  EVENKEEL_HOST_DEVICE void take_local_rows() {
    const MoveList& moves = buffers_.best;
    const bool by_sender = buffers_.homes.has_single_homes();
    const Array senders = buffers_.first_scratch;
    share_out(team_, moves.count, [&](int m) { senders[m] = buffers_.homes.slot_rank[moves.slot[m]]; });
    team_.sync();
    share_out_by_warp(team_, by_sender ? buffers_.homes.num_ranks : 1, [&](const auto& lanes, int sender) {
      using Lanes = std::remove_cvref_t<decltype(lanes)>;
      LocalRows<Lanes>(lanes, buffers_, counts_.sums, senders, by_sender ? sender : -1).improve();
    });
    team_.sync();
  }

  const Team& team_;
  const PlanRules& rules_;
  const StepCounts counts_;
  PlannerBuffers buffers_;
  std::int32_t assignments_ = 0;
  std::int32_t all_work_ = 0;
};

}  // namespace evenkeel::cuda
