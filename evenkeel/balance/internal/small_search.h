// The best plan of a small instance, by trying every set of transfers.
//
// Problem     Lowest worst rank, then fewest transfers, where pieces on ranks without a copy have at least
//             min_segment assignments (or all of the expert's). Packing items into bins is a special case, so
//             no fast exact method is to be expected.
// Method      For a worst load, from the lowest conceivable up, and a number of transfers, from the fewest
//             up: each set of (expert, rank) pairs of that size, and a maximum flow that says whether the
//             loads fit with these transfers. Ranks above the worst load at home must be in the set.
// Cost        At most kMostSteps sets are begun or tried, a millisecond or two; used where there are at most
//             kMostPairs pairs.
// Guarantee   Where it answers before its limits, nothing better exists.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::internal {

class SmallSearch {
 public:
  static constexpr int kMostPairs = 32;
  static constexpr int kMostSteps = 5000;
  static constexpr int kMostLowerLoads = 8;

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
    for (auto* sets : {&homes_, &allowed_}) sets->reserve(experts);
    for (auto* by_rank : {&base_, &home_load_, &space_}) by_rank->reserve(ranks);
    given_.reserve(experts * ranks);
    for (auto* pairs : {&pairs_, &chosen_}) pairs->reserve(experts * ranks);
  }

  // Looks for a plan better than `known`, whose worst load is at least `ideal`. Writes it to `plan` if found.
  bool improve(const Counts& counts, const LayerPlacement& placement, std::span<const std::int64_t> base_load,
               std::int64_t min_segment, std::int64_t ideal, Goal known, StepPlan& plan) {
    begin(counts, placement, base_load, min_segment);
    const bool single_homes = placement.has_single_homes();
    const std::int64_t lower_end = std::min(known.worst, ideal + kMostLowerLoads);
    for (std::int64_t worst = ideal; worst < lower_end; ++worst)
      if (search(worst, static_cast<std::int64_t>(load_.size() * ranks_), single_homes))
        return write(placement, plan);
    return search(known.worst, known.transfers - 1, single_homes) && write(placement, plan);
  }

 private:
  struct Pair {
    std::size_t expert;
    std::size_t rank;
  };
  using Ranks = std::uint64_t;  // a set of ranks

  template <class Visit>
  static void for_each_rank(Ranks set, Visit visit) {
    for (; set != 0; set &= set - 1) visit(static_cast<std::size_t>(std::countr_zero(set)));
  }
  static Ranks only(std::size_t rank) { return Ranks{1} << rank; }

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
    given_.assign(experts * ranks_, 0);
    for (std::size_t e = 0; e < experts; ++e) {
      least_[e] = std::min(load_[e], std::max<std::int64_t>(min_segment, 1));
      for (RankId home : placement.homes(ExpertId(e))) {
        homes_[e] |= only(home.offset());
        home_load_[home.offset()] += load_[e];
      }
    }
  }

  bool search(std::int64_t worst, std::int64_t most_transfers, bool single_homes) {
    worst_ = worst;
    steps_left_ = kMostSteps;
    find_pairs(worst);
    Ranks over = 0;
    for (std::size_t r = 0; r < ranks_; ++r)
      if (single_homes && home_load_[r] > worst) over |= only(r);
    most_transfers = std::min(most_transfers, static_cast<std::int64_t>(pairs_.size()));
    for (std::int64_t transfers = 0; transfers <= most_transfers && steps_left_ > 0; ++transfers)
      if (choose(0, transfers, over)) return true;
    return false;
  }

  void find_pairs(std::int64_t worst) {
    pairs_.clear();
    chosen_.clear();
    for (std::size_t e = 0; e < load_.size(); ++e)
      for (std::size_t r = 0; r < ranks_; ++r)
        if (load_[e] > 0 && (homes_[e] & only(r)) == 0 && least_[e] <= worst - base_[r])
          pairs_.push_back({e, r});
  }

  // `left` more pairs, from number `first` on; `unhelped`: ranks over the worst load that nothing leaves yet.
  bool choose(std::size_t first, std::int64_t left, Ranks unhelped) {
    if (--steps_left_ < 0 || std::popcount(unhelped) > left) return false;
    if (left == 0) return loads_fit();
    for (std::size_t i = first; i + static_cast<std::size_t>(left) <= pairs_.size() && steps_left_ > 0; ++i) {
      chosen_.push_back(pairs_[i]);
      if (choose(i + 1, left - 1, unhelped & ~homes_[pairs_[i].expert])) return true;
      chosen_.pop_back();
    }
    return false;
  }

  // A maximum flow: every chosen pair gets the least it may have, the rest goes where there is spare
  // capacity, and what does not fit makes spare capacity by moving others.
  bool loads_fit() {
    std::ranges::fill(given_, 0);
    allowed_ = homes_;
    space_.resize(ranks_);
    std::ranges::transform(base_, space_.begin(), [this](std::int64_t base) { return worst_ - base; });
    for (const Pair& pair : chosen_) {
      given(pair.expert, pair.rank) = least_[pair.expert];
      space_[pair.rank] -= least_[pair.expert];
      allowed_[pair.expert] |= only(pair.rank);
    }
    if (std::ranges::any_of(space_, [](std::int64_t spare) { return spare < 0; })) return false;
    for (std::size_t e = 0; e < load_.size(); ++e) {
      std::int64_t rest = load_[e];
      for (const Pair& pair : chosen_) rest -= pair.expert == e ? least_[e] : 0;
      if (rest < 0 || !place_rest(e, rest)) return false;
    }
    return true;
  }

  bool place_rest(std::size_t expert, std::int64_t rest) {
    bool moved = true;
    while (rest > 0 && moved) {
      moved = false;
      for_each_rank(allowed_[expert], [&](std::size_t rank) {
        std::int64_t amount = rest;
        if (amount == 0 || !make_space(rank, amount, 0)) return;
        given(expert, rank) += amount;
        rest -= amount;
        moved = true;
      });
    }
    return rest == 0;
  }

  // Takes `amount`, or less, of a rank's spare capacity, after moving other experts' pieces on if there is
  // none.
  bool make_space(std::size_t rank, std::int64_t& amount, Ranks seen) {
    if (space_[rank] > 0) {
      amount = std::min(amount, space_[rank]);
      space_[rank] -= amount;
      return true;
    }
    seen |= only(rank);
    for (std::size_t e = 0; e < load_.size(); ++e) {
      const std::int64_t fixed = (homes_[e] & only(rank)) != 0 ? 0 : least_[e];
      std::int64_t movable = std::min(amount, given(e, rank) - fixed);
      if ((allowed_[e] & only(rank)) == 0 || movable <= 0) continue;
      bool made = false;
      for_each_rank(allowed_[e] & ~seen, [&](std::size_t other) {
        if (made || !make_space(other, movable, seen)) return;
        given(e, rank) -= movable;
        given(e, other) += movable;
        made = true;
      });
      if (made) return amount = movable, true;
    }
    return false;
  }

  bool write(const LayerPlacement& placement, StepPlan& plan) const {
    plan.begin(placement);
    for (std::size_t e = 0; e < load_.size(); ++e) {
      if (load_[e] == 0) continue;
      plan.begin_expert(ExpertId(e));
      const auto give = [&](std::size_t rank) {
        if (given_[e * ranks_ + rank] > 0) plan.give(RankId(rank), given_[e * ranks_ + rank]);
      };
      for (RankId home : placement.homes(ExpertId(e))) give(home.offset());
      for_each_rank(allowed_[e] & ~homes_[e], give);
    }
    return true;
  }

  std::int64_t& given(std::size_t expert, std::size_t rank) { return given_[expert * ranks_ + rank]; }

  std::size_t ranks_ = 0;
  std::vector<std::int64_t> load_;       // [E]
  std::vector<std::int64_t> least_;      // [E]
  std::vector<Ranks> homes_;             // [E]
  std::vector<Ranks> allowed_;           // [E], homes and chosen ranks
  std::vector<std::int64_t> base_;       // [P]
  std::vector<std::int64_t> home_load_;  // [P]
  std::vector<std::int64_t> space_;      // [P], left while a flow is found
  std::vector<std::int64_t> given_;      // [E][P], of the flow
  std::vector<Pair> pairs_;
  std::vector<Pair> chosen_;
  std::int64_t worst_ = 0;
  int steps_left_ = 0;
};

}  // namespace evenkeel::internal
