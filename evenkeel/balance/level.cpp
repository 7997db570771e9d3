#include "evenkeel/balance/level.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/local_rows.h"
#include "evenkeel/balance/step_input.h"

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
  reserve(placement);
  add_home_loads(placement.num_ranks(), base_load);
  const std::int64_t total = std::accumulate(base_load.begin(), base_load.end(), counts.total());
  if (within_threshold(total)) return keep_home(counts, placement, plan);

  const std::int64_t ideal = ideal_worst(total, home_load_.size(), base_load);
  if (!placement.has_single_homes()) free_moves_.level(slots_, home_load_, ideal);
  const std::int64_t worst = search_worst(ideal);
  if (worst == ideal || !least_loaded_is_lower(worst, counts, placement, plan, base_load)) {
    settle_rests();
    keep_rows_local(counts, slots_, rest_, moves_);
    write(counts, placement, plan);
  }
  if (is_searched(placement)) search_all(counts, placement, plan, base_load, ideal);
}

bool Level::is_searched(const LayerPlacement& placement) const {
  return options_.search_small && SmallSearch::is_small(placement);
}

// All memory of a shape is taken at its first step, whichever path that takes.
void Level::reserve(const LayerPlacement& placement) {
  const auto experts = static_cast<std::size_t>(placement.num_experts());
  const auto ranks = static_cast<std::size_t>(placement.num_ranks());
  matcher_.reserve(slots_.size(), ranks);
  least_loaded_.reserve(placement.num_experts(), placement.num_ranks());
  if (!placement.has_single_homes()) free_moves_.reserve(ranks);
  balance_.resize(ranks);
  rest_.reserve(slots_.size());
  moves_.reserve(ExcessMatcher::most_moves(slots_.size(), ranks));
  first_move_.reserve(experts);
  next_move_.reserve(moves_.capacity());
  if (!is_searched(placement)) return;
  transfer_bound_.reserve(placement);
  small_search_.reserve(placement);
}

// Its last piece of an expert may be smaller than min_segment, so it can be lower where pieces are large.
bool Level::least_loaded_is_lower(std::int64_t worst, const Counts& counts, const LayerPlacement& placement,
                                  StepPlan& plan, std::span<const std::int64_t> base_load) {
  least_loaded_.plan(counts, placement, plan, base_load);
  return worst_load(plan, base_load) < worst;
}

void Level::search_all(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                       std::span<const std::int64_t> base_load, std::int64_t ideal) {
  const SmallSearch::Goal known{worst_load(plan, base_load),
                                static_cast<std::int64_t>(plan.transfers().size())};
  const std::int64_t fewest = transfer_bound_.of(counts, placement, ideal, base_load);
  if (known.worst == ideal && known.transfers == fewest) return;
  small_search_.improve(counts, placement, base_load, options_.min_segment, ideal, known, plan);
}

void Level::add_home_loads(int num_ranks, std::span<const std::int64_t> base_load) {
  home_load_.assign(static_cast<std::size_t>(num_ranks), 0);
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
  matcher_.reset(slots_, balance_, options_.min_segment);
  return matcher_.settle(ranks_);
}

std::int64_t Level::settled_worst(std::int64_t target) const {
  return target + *std::ranges::max_element(matcher_.balance());
}

std::int64_t Level::search_worst(std::int64_t ideal) {
  if (settle_at(ideal)) {
    moves_.assign(matcher_.moves().begin(), matcher_.moves().end());
    return ideal;
  }
  std::int64_t best = *std::ranges::max_element(home_load_);  // with no move at all
  moves_.clear();
  const auto keep = [&](std::int64_t target) {
    const std::int64_t worst = settled_worst(target);
    if (worst >= best) return;
    best = worst;
    moves_.assign(matcher_.moves().begin(), matcher_.moves().end());
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

void Level::settle_rests() {
  rest_.resize(slots_.size());
  std::ranges::transform(slots_.all(), rest_.begin(), &HomeSlots::Slot::share);
  for (const Move& m : moves_) rest_[m.slot.offset()] -= m.amount;
}

void Level::write(const Counts& counts, const LayerPlacement& placement, StepPlan& plan) {
  group_moves(counts.num_experts());
  plan.begin(placement);
  for (ExpertId expert : indices<ExpertId>(counts.num_experts())) {
    if (counts.load(expert) == 0) continue;
    plan.begin_expert(expert);
    for (SlotId slot : slots_.copies(expert))
      if (rest_[slot.offset()] > 0) plan.give(slots_[slot].rank, rest_[slot.offset()]);
    for (std::size_t i = first_move_[expert.offset()]; i < moves_.size(); i = next_move_[i])
      plan.give(moves_[i].to, moves_[i].amount);
  }
}

// Lists of an expert's moves, in the order they were made.
void Level::group_moves(int num_experts) {
  first_move_.assign(static_cast<std::size_t>(num_experts), moves_.size());
  next_move_.resize(moves_.size());
  for (std::size_t i = moves_.size(); i-- > 0;)
    next_move_[i] = std::exchange(first_move_[slots_[moves_[i].slot].expert.offset()], i);
}

}  // namespace evenkeel
