#include "evenkeel/balance/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/least_loaded.h"
#include "evenkeel/balance/level.h"
#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"
#include "evenkeel/plan/deal.h"

namespace evenkeel {

namespace {

// Wraps a planner: everything stays at home in steps where moving work is not worth its cost.
class ByGain final : public Planner {
 public:
  ByGain(std::unique_ptr<Planner> planner, const SpillCosts& costs)
      : planner_(std::move(planner)), costs_(costs) {}

  std::string_view name() const override { return planner_->name(); }
  void plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
            std::span<const std::int64_t> base_load) override {
    planner_->plan(counts, placement, plan, base_load);
    // Reserves all memory of a shape at its first step, whether or not it spills.
    for (auto* by_rank : {&at_home_, &planned_, &sends_, &receives_})
      by_rank->reserve(static_cast<std::size_t>(plan.num_ranks()));
    if (plan.spilled() && seconds_gained(counts, placement, plan, base_load) <= 0)
      Ep::keep_home(counts, placement, plan);
  }

 private:
  // The seconds that the plan is predicted to save, compared with every expert at home. The plan must move
  // something.
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
    const std::int64_t most_transfers = std::max(std::ranges::max(sends_), std::ranges::max(receives_));
    return static_cast<double>(saved) * costs_.seconds_per_assignment -
           static_cast<double>(most_transfers) * costs_.seconds_per_transfer - costs_.seconds_per_step;
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
                          "planner level, or no borrow_slots");
  if (options.links) require_links(*options.links, "links");
  if (options.links && options.kind != PlannerOptions::Kind::level)
    throw InvalidArgument("links", fmt::format("{} does not use links", name_of(options.kind)),
                          "planner level, or no links");
  if (!options.costs) return;
  if (options.links)
    throw InvalidArgument("costs", "links already say what moving costs", "costs or links, not both");
  const std::pair<const char*, double> all[] = {
      {"seconds_per_assignment", options.costs->seconds_per_assignment},
      {"seconds_per_transfer", options.costs->seconds_per_transfer},
      {"seconds_per_step", options.costs->seconds_per_step}};
  for (const auto& [name, seconds] : all)
    if (!(seconds >= 0 && std::isfinite(seconds)))
      throw InvalidArgument("costs", fmt::format("{} is {}", name, seconds), "finite seconds, 0 or more");
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

double median_plan_us(Planner& planner, const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                      double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr std::ptrdiff_t warm_ups = 20;
  constexpr std::ptrdiff_t most = 5000;
  std::vector<double> us;
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    planner.plan(counts, placement, plan);
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  } while (std::ssize(us) < most && Clock::now() - begin < std::chrono::duration<double>(seconds));
  const auto timed = us.begin() + std::min(warm_ups, std::ssize(us) - 1);
  const auto median = timed + (us.end() - timed) / 2;
  std::ranges::nth_element(timed, median, us.end());
  return *median;
}

PredictedStep predict_step(const StepLinks& links, const Counts& counts, const StepPlan& plan,
                           std::span<const std::int64_t> base_load) {
  const auto ranks = static_cast<std::size_t>(counts.num_ranks());
  std::vector<double> rows(ranks * ranks), transfers(ranks * ranks);
  Deal deal;
  for (RankId from : indices<RankId>(counts.has_sources() ? ranks : 0)) {
    deal.make(counts, plan, from);
    for (std::size_t to = 0; to < ranks; ++to)
      rows[from.offset() * ranks + to] = static_cast<double>(deal.sent()[to]);
  }
  for (const Transfer& t : plan.transfers()) transfers[t.from.offset() * ranks + t.to.offset()] += 1;

  std::int64_t worst = 0;
  for (std::size_t r = 0; r < ranks; ++r)
    worst = std::max(worst, plan.rank_loads()[r] + (base_load.empty() ? 0 : base_load[r]));
  PredictedStep step{.seconds = step_seconds(links, worst, rows, transfers)};
  double row_bytes = 0;
  const double borrowed = step_parts(links.machine, links.expert, links.backward).borrowed_bytes;
  for (RankId from : indices<RankId>(ranks))
    for (RankId to : indices<RankId>(ranks)) {
      if (links.topology.same_node(from, to)) continue;
      row_bytes += rows[from.offset() * ranks + to.offset()] * links.row_bytes;
      step.weight_bytes_across += transfers[from.offset() * ranks + to.offset()] * borrowed;
    }
  if (counts.has_sources()) step.row_bytes_across = row_bytes;
  return step;
}

PredictedSteps predict_steps(const StepLinks& links, const PlannerOptions& options, const Counts& counts,
                             const LayerPlacement& placement, const StepPlan& plan, const StepPlan& plain,
                             std::span<const std::int64_t> base_load) {
  PredictedSteps steps{.planned = predict_step(links, counts, plan, base_load),
                       .plain = predict_step(links, counts, plain, base_load)};
  if (options.links) {
    PlannerOptions alike = options;
    alike.links.reset();
    StepPlan made;
    make_planner(alike)->plan(counts, placement, made, base_load);
    steps.without_links = predict_step(links, counts, made, base_load);
  }
  return steps;
}

}  // namespace evenkeel
