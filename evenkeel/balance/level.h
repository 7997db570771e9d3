// Level: the lowest worst rank that can be had, with few weight transfers.
#pragma once

#include <vector>

#include "evenkeel/balance/home_slots.h"
#include "evenkeel/balance/least_loaded.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/balance/settlement.h"
#include "evenkeel/balance/small_search.h"

namespace evenkeel {

class Level final : public Planner {
 public:
  explicit Level(const PlannerOptions& options);

  std::string_view name() const override { return "level"; }
  void plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
            std::span<const std::int64_t> base_load = {}) override;

 private:
  void add_home_loads(std::span<const std::int64_t> base_load);
  bool within_threshold(std::int64_t total) const;
  bool settle_at(std::int64_t worst);
  std::int64_t settled_worst(std::int64_t target) const;
  std::int64_t search_worst(std::int64_t ideal);
  void take_least_loaded_if_lower(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                                  std::span<const std::int64_t> base_load);
  void search_all(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                  std::span<const std::int64_t> base_load, std::int64_t ideal);
  void write(const Counts& counts, const LayerPlacement& placement, StepPlan& plan);

  PlannerOptions options_;
  LeastLoaded least_loaded_;
  HomeSlots slots_;
  std::vector<std::int64_t> home_load_;  // [P], base load included
  std::vector<std::int64_t> balance_;    // [P]
  std::vector<RankId> ranks_;
  Settlement settlement_;
  SmallSearch small_search_;
  std::vector<Move> moves_;
  std::vector<int> first_move_;  // [E], -1 for none
  std::vector<int> next_move_;   // beside moves_
};

}  // namespace evenkeel
