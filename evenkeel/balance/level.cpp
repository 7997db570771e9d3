#include "evenkeel/balance/level.h"

#include <algorithm>
#include <numeric>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/step_input.h"
#include "evenkeel/balance/transfer_bound.h"

namespace evenkeel {

namespace {

__extension__ using Wide = __int128;  // products of two loads

PlannerOptions always_planning(PlannerOptions options) {
  options.capacity_factor_thousandths = 1000;
  options.imbalance_threshold_thousandths = 0;
  return options;
}

std::int64_t worst_load(const StepPlan& plan, std::span<const std::int64_t> base_load) {
  std::int64_t worst = 0;
  for (std::size_t r = 0; r < plan.rank_loads().size(); ++r)
    worst = std::max(worst, plan.rank_loads()[r] + (base_load.empty() ? 0 : base_load[r]));
  return worst;
}

std::int64_t ideal_worst(std::int64_t total, std::size_t ranks, std::span<const std::int64_t> base_load) {
  const auto n = static_cast<std::int64_t>(ranks);
  const std::int64_t mean = total / n + (total % n != 0);
  return base_load.empty() ? mean : std::max(mean, *std::ranges::max_element(base_load));
}

}  // namespace

Level::Level(const PlannerOptions& options) : options_(options), least_loaded_(always_planning(options)) {}

void Level::plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                 std::span<const std::int64_t> base_load) {
  require_step_input(counts, placement, base_load);
  slots_.reset(counts, placement, options_.min_segment);
  home_load_.assign(static_cast<std::size_t>(counts.num_ranks()), 0);
  add_home_loads(base_load);
  const std::int64_t total = std::accumulate(base_load.begin(), base_load.end(), counts.total());
  if (within_threshold(total)) return keep_home(counts, placement, plan);

  const std::int64_t ideal = ideal_worst(total, home_load_.size(), base_load);
  const std::int64_t worst = search_worst(ideal);
  write(counts, placement, plan);
  if (worst > ideal) take_least_loaded_if_lower(counts, placement, plan, base_load);
  if (SmallSearch::is_small(placement)) search_all(counts, placement, plan, base_load, ideal);
}

void Level::take_least_loaded_if_lower(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                                       std::span<const std::int64_t> base_load) {
  const std::int64_t worst = worst_load(plan, base_load);
  least_loaded_.plan(counts, placement, plan, base_load);
  if (worst_load(plan, base_load) >= worst) write(counts, placement, plan);
}

void Level::search_all(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                       std::span<const std::int64_t> base_load, std::int64_t ideal) {
  const SmallSearch::Goal known{worst_load(plan, base_load),
                                static_cast<std::int64_t>(plan.transfers().size())};
  if (known.worst == ideal && known.transfers == transfer_lower_bound(counts, placement, ideal, base_load))
    return;
  small_search_.improve(counts, placement, base_load, options_.min_segment, ideal, known, plan);
}

void Level::add_home_loads(std::span<const std::int64_t> base_load) {
  std::ranges::copy(base_load, home_load_.begin());
  for (const auto& slot : slots_.all()) home_load_[slot.rank.offset()] += slot.share;
  ranks_.clear();
  for (RankId rank : indices<RankId>(home_load_.size())) ranks_.push_back(rank);
}

bool Level::within_threshold(std::int64_t total) const {
  const Wide largest = *std::ranges::max_element(home_load_);
  return largest * static_cast<Wide>(home_load_.size()) * 1000 <
         Wide{options_.imbalance_threshold_thousandths} * total;
}

bool Level::settle_at(std::int64_t worst) {
  balance_.resize(home_load_.size());
  std::ranges::transform(home_load_, balance_.begin(), [=](std::int64_t load) { return load - worst; });
  settlement_.reset(slots_, balance_, options_.min_segment);
  return settlement_.settle(ranks_);
}

std::int64_t Level::settled_worst(std::int64_t target) const {
  return target + *std::ranges::max_element(settlement_.balance());
}

std::int64_t Level::search_worst(std::int64_t ideal) {
  if (settle_at(ideal)) {
    moves_.assign(settlement_.moves().begin(), settlement_.moves().end());
    return ideal;
  }
  std::int64_t best = *std::ranges::max_element(home_load_);
  moves_.clear();
  const auto keep = [&](std::int64_t target) {
    const std::int64_t worst = settled_worst(target);
    if (worst >= best) return;
    best = worst;
    moves_.assign(settlement_.moves().begin(), settlement_.moves().end());
  };
  keep(ideal);
  std::int64_t failed = ideal;
  while (failed + 1 < best) {
    const std::int64_t target = failed + (best - failed) / 2;
    if (!settle_at(target)) failed = target;
    keep(target);
  }
  return best;
}

void Level::write(const Counts& counts, const LayerPlacement& placement, StepPlan& plan) {
  first_move_.assign(static_cast<std::size_t>(counts.num_experts()), -1);
  next_move_.assign(moves_.size(), -1);
  for (int i = static_cast<int>(moves_.size()) - 1; i >= 0; --i) {
    int& first = first_move_[slots_[moves_[static_cast<std::size_t>(i)].slot].expert.offset()];
    next_move_[static_cast<std::size_t>(i)] = std::exchange(first, i);
  }
  plan.begin(placement);
  for (ExpertId expert : indices<ExpertId>(counts.num_experts())) {
    if (counts.load(expert) == 0) continue;
    plan.begin_expert(expert);
    const auto homes = placement.homes(expert);
    for (std::size_t copy = 0; copy < homes.size(); ++copy) {
      std::int64_t rest = copy_share(counts.load(expert), homes.size(), copy);
      for (int i = first_move_[expert.offset()]; i >= 0; i = next_move_[static_cast<std::size_t>(i)]) {
        const Move& m = moves_[static_cast<std::size_t>(i)];
        if (slots_[m.slot].rank == homes[copy]) rest -= m.amount;
      }
      if (rest > 0) plan.give(homes[copy], rest);
    }
    for (int i = first_move_[expert.offset()]; i >= 0; i = next_move_[static_cast<std::size_t>(i)])
      plan.give(moves_[static_cast<std::size_t>(i)].to, moves_[static_cast<std::size_t>(i)].amount);
  }
}

}  // namespace evenkeel
