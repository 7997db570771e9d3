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

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

class SmallSearch {
 public:
  static constexpr int kMostPairs = 32;
  static constexpr int kMostSteps = 5000;
  static constexpr int kMostLowerLoads = 8;

  struct Goal {
    std::int64_t worst = 0;
    std::int64_t transfers = 0;
  };

  static bool is_small(const LayerPlacement& placement);

  void reserve(const LayerPlacement& placement);

  // Looks for a plan better than `known`, whose worst load is at least `ideal`. Writes it to `plan` if found.
  bool improve(const Counts& counts, const LayerPlacement& placement, std::span<const std::int64_t> base_load,
               std::int64_t min_segment, std::int64_t ideal, Goal known, StepPlan& plan);

 private:
  struct Pair {
    std::size_t expert;
    std::size_t rank;
  };
  using Ranks = std::uint64_t;  // a set of ranks

  void begin(const Counts& counts, const LayerPlacement& placement, std::span<const std::int64_t> base_load,
             std::int64_t min_segment);
  bool search(std::int64_t worst, std::int64_t most_transfers, bool single_homes);
  void find_pairs(std::int64_t worst);
  bool choose(std::size_t first, std::int64_t left, Ranks unhelped);
  bool loads_fit();
  bool place_rest(std::size_t expert, std::int64_t rest);
  bool make_space(std::size_t rank, std::int64_t& amount, Ranks seen);
  bool write(const LayerPlacement& placement, StepPlan& plan) const;

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

}  // namespace evenkeel
