// Turns options into the planner they name, and with costs into one that also asks what moving is worth.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/internal/keep_home.h"
#include "evenkeel/balance/least_loaded.h"
#include "evenkeel/balance/level.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

// Any planner, but everything stays at home in steps where moving work is not worth its cost.
class ByGain final : public Planner {
 public:
  ByGain(std::unique_ptr<Planner> planner, const SpillCosts& costs)
      : planner_(std::move(planner)), costs_(costs) {}

  std::string_view name() const override { return planner_->name(); }
  void plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
            std::span<const std::int64_t> base_load) override {
    planner_->plan(counts, placement, plan, base_load);
    reserve(static_cast<std::size_t>(plan.num_ranks()));
    if (plan.spilled() && seconds_gained(counts, placement, plan, base_load) <= 0)
      internal::keep_home(counts, placement, plan);
  }

 private:
  // All memory of a shape is taken at its first step, spilled or not.
  void reserve(std::size_t ranks) {
    for (auto* by_rank : {&at_home_, &planned_, &sends_, &receives_}) by_rank->reserve(ranks);
  }

  // Seconds that the plan, which moves something, is predicted to take less than every expert at home does.
  double seconds_gained(const Counts& counts, const LayerPlacement& placement, const StepPlan& plan,
                        std::span<const std::int64_t> base_load) {
    const auto ranks = static_cast<std::size_t>(plan.num_ranks());
    at_home_.assign(base_load.begin(), base_load.end());
    at_home_.resize(ranks);
    planned_.resize(ranks);
    std::ranges::transform(at_home_, plan.rank_loads(), planned_.begin(), std::plus());
    for (ExpertId expert : indices<ExpertId>(counts.num_experts())) {
      const auto homes = placement.homes(expert);
      const auto copies = static_cast<std::int64_t>(homes.size());
      for (RankId home : homes) at_home_[home.offset()] += (counts.load(expert) + copies - 1) / copies;
    }
    sends_.assign(ranks, 0);
    receives_.assign(ranks, 0);
    for (const Transfer& transfer : plan.transfers()) {
      ++sends_[transfer.from.offset()];
      ++receives_[transfer.to.offset()];
    }
    const std::int64_t saved = std::ranges::max(at_home_) - std::ranges::max(planned_);
    const std::int64_t travelling = std::max(std::ranges::max(sends_), std::ranges::max(receives_));
    return static_cast<double>(saved) * costs_.seconds_per_assignment -
           static_cast<double>(travelling) * costs_.seconds_per_transfer - costs_.seconds_per_step;
  }

  std::unique_ptr<Planner> planner_;
  SpillCosts costs_;
  std::vector<std::int64_t> at_home_, planned_, sends_, receives_;  // by rank
};

void validate_options(const PlannerOptions& options) {
  if (options.capacity_factor_thousandths < 1000)
    throw InvalidArgument("capacity_factor",
                          fmt::format("{} thousandths", options.capacity_factor_thousandths),
                          "1000 or more: ranks must be able to hold the mean");
  if (options.min_segment < 0)
    throw InvalidArgument("min_segment", fmt::format("{}", options.min_segment), "0 or more");
  if (options.imbalance_threshold_thousandths < 0)
    throw InvalidArgument("imbalance_threshold",
                          fmt::format("{} thousandths", options.imbalance_threshold_thousandths),
                          "0 (always plan) or more");
  if (options.borrow_slots < 0)
    throw InvalidArgument("borrow_slots", fmt::format("{}", options.borrow_slots), "0 or more");
  if (options.kind == PlannerOptions::Kind::least_loaded && options.borrow_slots < kUnlimitedSlots)
    throw InvalidArgument("borrow_slots", "least-loaded borrows without a limit",
                          "level, or to leave it out");
  if (options.links) require_links(*options.links, "links");
  if (options.links && options.kind != PlannerOptions::Kind::level)
    throw InvalidArgument("links", fmt::format("{} does not know them", name_of(options.kind)),
                          "level, or to leave them out");
  if (!options.costs) return;
  if (options.links) throw InvalidArgument("costs", "links say what moving costs", "either costs or links");
  for (const double seconds : {options.costs->seconds_per_assignment, options.costs->seconds_per_transfer,
                               options.costs->seconds_per_step})
    if (!(seconds >= 0 && std::isfinite(seconds)))
      throw InvalidArgument("costs", fmt::format("{} seconds", seconds), "seconds from 0");
}

std::unique_ptr<Planner> planner_of(const PlannerOptions& options) {
  switch (options.kind) {
    case PlannerOptions::Kind::ep:
      return std::make_unique<Ep>();
    case PlannerOptions::Kind::least_loaded:
      return std::make_unique<LeastLoaded>(options);
    case PlannerOptions::Kind::level:
      return std::make_unique<Level>(options);
  }
  EVENKEEL_CHECK(false);
}

}  // namespace

std::string_view name_of(PlannerOptions::Kind kind) {
  constexpr std::string_view names[] = {"ep", "least-loaded", "level"};
  return names[static_cast<std::size_t>(kind)];
}

PlannerOptions::Kind parse_planner(std::string_view name, const std::string& argument) {
  using Kind = PlannerOptions::Kind;
  for (const Kind kind : {Kind::ep, Kind::least_loaded, Kind::level})
    if (name_of(kind) == name) return kind;
  throw InvalidArgument(argument, fmt::format("'{}' is no planner", name), "ep, least-loaded, level");
}

std::unique_ptr<Planner> make_planner(const PlannerOptions& options) {
  validate_options(options);
  if (!options.costs || options.kind == PlannerOptions::Kind::ep) return planner_of(options);
  return std::make_unique<ByGain>(planner_of(options), *options.costs);
}

}  // namespace evenkeel
