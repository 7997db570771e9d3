// The best plan of a small instance, by trying every set of transfers.
//
// Problem     Lowest worst rank, then fewest transfers, where pieces on ranks without a copy have at least
//             min_segment assignments (or all of the expert's). Packing items into bins is a special case, so
//             no fast exact method is to be expected.
// Method      For a worst load, from the lowest conceivable up, and a number of transfers, from the fewest
//             up: each set of (expert, rank) pairs of that size, and a maximum flow (small_flow.h) that says
//             whether the loads fit with these transfers. Ranks above the worst load at home must be in the
//             set.
// Cost        Used where there are at most kMostPairs pairs. At most kMostSteps sets are begun or tried for
//             each of 1 + kMostLowerLoads worst loads, and their flows look at kMostVisits ranks in all,
//             however large the loads are: nearly always below 2 ms, some 30 ms at most.
// Guarantee   Where it answers before its limits, nothing better exists.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/balance/internal/small_flow.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::internal {

class SmallSearch {
 public:
  static constexpr int kMostPairs = 32;
  static constexpr int kMostSteps = 5000;
  static constexpr std::int64_t kMostVisits = 2'000'000;
  static constexpr std::int64_t kMostLowerLoads = 8;

  struct Goal {
    std::int64_t worst = 0;
    std::int64_t transfers = 0;
  };

  static bool is_small(const LayerPlacement& placement) {
    return std::int64_t{placement.num_experts()} * (placement.num_ranks() - 1) <= kMostPairs;
  }

  void reserve(const LayerPlacement& placement) {
    const auto experts = static_cast<std::size_t>(placement.num_experts());
    const auto ranks = static_cast<std::size_t>(placement.num_ranks());
    for (auto* by_expert : {&load_, &least_}) by_expert->reserve(experts);
    homes_.reserve(experts);
    for (auto* by_rank : {&base_, &home_load_, &space_}) by_rank->reserve(ranks);
    flow_.reserve(experts, ranks);
    for (auto* pairs : {&pairs_, &chosen_}) pairs->reserve(experts * ranks);
  }

  // Looks for a plan better than `known`, whose worst load is at least `ideal`. Writes it to `plan` if found.
  bool improve(const Counts& counts, const LayerPlacement& placement, std::span<const std::int64_t> base_load,
               std::int64_t min_segment, std::int64_t ideal, Goal known, StepPlan& plan) {
    begin(counts, placement, base_load, min_segment);
    const bool single_homes = placement.has_single_homes();
    visits_left_ = kMostVisits;
    const std::int64_t lower_loads = std::min(known.worst - ideal, kMostLowerLoads);
    for (std::int64_t worst = ideal; worst < ideal + lower_loads; ++worst)
      if (search(worst, static_cast<std::int64_t>(load_.size() * ranks_), single_homes))
        return write(placement, plan);
    return search(known.worst, known.transfers - 1, single_homes) && write(placement, plan);
  }

  std::int64_t visits() const { return kMostVisits - visits_left_; }  // of the latest improve()

 private:
  struct Pair {
    std::size_t expert;
    std::size_t rank;
  };
  using Ranks = SmallFlow::Ranks;

  static Ranks only(std::size_t rank) { return SmallFlow::only(rank); }

  void begin(const Counts& counts, const LayerPlacement& placement, std::span<const std::int64_t> base_load,
             std::int64_t min_segment) {
    ranks_ = static_cast<std::size_t>(counts.num_ranks());
    const auto experts = static_cast<std::size_t>(counts.num_experts());
    load_.assign(counts.loads().begin(), counts.loads().end());
    least_.assign(experts, 0);
    homes_.assign(experts, 0);
    base_.assign(ranks_, 0);
    std::ranges::copy(base_load, base_.begin());
    home_load_ = base_;
    for (std::size_t e = 0; e < experts; ++e) {
      least_[e] = std::min(load_[e], std::max<std::int64_t>(min_segment, 1));
      for (RankId home : placement.homes(ExpertId(e))) {
        homes_[e] |= only(home.offset());
        home_load_[home.offset()] += load_[e];
      }
    }
  }

  bool search(std::int64_t worst, std::int64_t most_transfers, bool single_homes) {
    steps_left_ = kMostSteps;
    space_.resize(ranks_);
    std::ranges::transform(base_, space_.begin(), [=](std::int64_t base) { return worst - base; });
    find_pairs();
    Ranks over = 0;
    for (std::size_t r = 0; r < ranks_; ++r)
      if (single_homes && home_load_[r] > worst) over |= only(r);
    most_transfers = std::min(most_transfers, static_cast<std::int64_t>(pairs_.size()));
    for (std::int64_t transfers = 0; transfers <= most_transfers && has_steps(); ++transfers)
      if (choose(0, transfers, over)) return true;
    return false;
  }

  bool has_steps() const { return steps_left_ > 0 && visits_left_ > 0; }

  void find_pairs() {
    pairs_.clear();
    chosen_.clear();
    for (std::size_t e = 0; e < load_.size(); ++e)
      for (std::size_t r = 0; r < ranks_; ++r)
        if (load_[e] > 0 && (homes_[e] & only(r)) == 0 && least_[e] <= space_[r]) pairs_.push_back({e, r});
  }

  // `left` more pairs, from number `first` on; `unhelped`: ranks over the worst load that nothing leaves yet.
  bool choose(std::size_t first, std::int64_t left, Ranks unhelped) {
    if (--steps_left_ < 0 || std::popcount(unhelped) > left) return false;
    if (left == 0) return loads_fit();
    for (std::size_t i = first; i + static_cast<std::size_t>(left) <= pairs_.size() && has_steps(); ++i) {
      chosen_.push_back(pairs_[i]);
      if (choose(i + 1, left - 1, unhelped & ~homes_[pairs_[i].expert])) return true;
      chosen_.pop_back();
    }
    return false;
  }

  // Every chosen pair gets the least it may have, the rest goes where it fits.
  bool loads_fit() {
    flow_.begin(load_, homes_, space_);
    for (const Pair& pair : chosen_) flow_.allow(pair.expert, pair.rank, least_[pair.expert]);
    const bool fit = flow_.place_all(visits_left_);
    visits_left_ -= flow_.visits();
    return fit;
  }

  bool write(const LayerPlacement& placement, StepPlan& plan) const {
    plan.begin(placement);
    for (std::size_t e = 0; e < load_.size(); ++e) {
      if (load_[e] == 0) continue;
      plan.begin_expert(ExpertId(e));
      const auto give = [&](std::size_t rank) {
        if (flow_.given(e, rank) > 0) plan.give(RankId(rank), flow_.given(e, rank));
      };
      for (RankId home : placement.homes(ExpertId(e))) give(home.offset());
      SmallFlow::for_each_rank(flow_.allowed(e) & ~homes_[e], give);
    }
    return true;
  }

  std::size_t ranks_ = 0;
  std::vector<std::int64_t> load_;       // [E]
  std::vector<std::int64_t> least_;      // [E]
  std::vector<Ranks> homes_;             // [E]
  std::vector<std::int64_t> base_;       // [P]
  std::vector<std::int64_t> home_load_;  // [P]
  std::vector<std::int64_t> space_;      // [P], under the worst load
  std::vector<Pair> pairs_;
  std::vector<Pair> chosen_;
  SmallFlow flow_;
  int steps_left_ = 0;
  std::int64_t visits_left_ = kMostVisits;
};

}  // namespace evenkeel::internal
