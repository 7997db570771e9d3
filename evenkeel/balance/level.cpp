#include "evenkeel/balance/level.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/internal/excess_matcher.h"
#include "evenkeel/balance/internal/free_moves.h"
#include "evenkeel/balance/internal/home_slots.h"
#include "evenkeel/balance/internal/link_times.h"
#include "evenkeel/balance/internal/local_rows.h"
#include "evenkeel/balance/least_loaded.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

using internal::ExcessMatcher;
using internal::HomeSlots;
using internal::LinkTimes;
using internal::Move;
using internal::SlotId;

__extension__ using Wide = __int128;  // products of two loads

PlannerOptions always_planning(PlannerOptions options) {
  options.capacity_factor_thousandths = 1000;
  options.imbalance_threshold_thousandths = 0;
  return options;
}

// The arguments of a planner, and the plan that it fills.
struct Step {
  const Counts& counts;
  const LayerPlacement& placement;
  std::span<const std::int64_t> base_load;
  StepPlan& plan;
};

}  // namespace

class Level::Search {
 public:
  using Time = LinkTimes::Picoseconds;

  explicit Search(const PlannerOptions& options)
      : options_(options), least_loaded_(always_planning(options)) {
    if (options.links && links_differ(*options.links)) links_.emplace(*options.links);
  }

  void plan(const Step& step) {
    internal::require_step_input(step.counts, step.placement, step.base_load);
    if (options_.links && options_.links->topology.num_ranks() != step.placement.num_ranks())
      throw InvalidArgument("links", fmt::format("are for {} ranks", options_.links->topology.num_ranks()),
                            fmt::format("{} ranks, as in the placement", step.placement.num_ranks()));
    slots_.reset(step.counts, step.placement, options_.min_segment);
    reserve(step.placement);
    const std::int64_t experts = step.placement.num_experts();  // no rank borrows more
    borrow_slots_ = options_.borrow_slots < experts ? options_.borrow_slots : kUnlimitedSlots;
    add_home_loads(step);
    const std::int64_t total =
        std::accumulate(step.base_load.begin(), step.base_load.end(), step.counts.total());
    if (within_threshold(total)) return Ep::keep_home(step.counts, step.placement, step.plan);

    const std::int64_t ideal = ideal_worst(total, step.base_load);
    if (!step.placement.has_single_homes()) free_moves_.level(slots_, home_load_, ideal);
    const std::int64_t worst = search_worst(ideal);
    if (worst == ideal || !least_loaded_is_lower(worst, step)) write_moves(step, step.plan, nullptr);
    if (links_) plan_for_time(step, ideal);
  }

 private:
  // Takes another plan if it is predicted to take less time. It tries plain EP, and plans with worst ranks
  // from the lowest to that of plain EP (fewer of them where there are many ranks).
  void plan_for_time(const Step& step, std::int64_t ideal) {
    links_->read(step.counts, step.placement, step.base_load);
    Time least = links_->of(step.plan);
    const auto take_if_faster = [&] {
      const Time time = links_->of(tried_);
      if (time >= least) return;
      least = time;
      std::swap(step.plan, tried_);
    };
    const auto settle_at_worst = [&](std::int64_t worst) {
      settle_nodes_at(worst);
      moves_.assign(matcher_.moves().begin(), matcher_.moves().end());
      write_moves(step, tried_, &*links_);
      take_if_faster();
    };
    Ep::keep_home(step.counts, step.placement, tried_);
    take_if_faster();
    const std::int64_t largest = std::ranges::max(home_load_);
    const std::int64_t parts = std::clamp<std::int64_t>(256 / std::ssize(home_load_), 1, 4);
    for (std::int64_t part = 0; part < parts; ++part)
      settle_at_worst(ideal + static_cast<std::int64_t>(Wide{largest - ideal} * part / parts));
    if (const std::int64_t of_nodes = ideal_of_nodes(ideal); of_nodes > ideal) settle_at_worst(of_nodes);
  }

  // The lowest load of the worst rank without moves across nodes, if pieces of any size were possible.
  std::int64_t ideal_of_nodes(std::int64_t ideal) const {
    std::int64_t worst = ideal;
    for (std::size_t node = 0; node < links_->num_nodes(); ++node) {
      const auto ranks = links_->ranks_of(node);
      std::int64_t sum = 0;
      for (RankId rank : ranks) sum += home_load_[rank.offset()];
      const std::int64_t count = std::ssize(ranks);
      worst = std::max(worst, sum / count + (sum % count != 0));
    }
    return worst;
  }

  // Settles inside each node first, then across.
  void settle_nodes_at(std::int64_t worst) {
    reset_matcher(worst);
    for (std::size_t node = 0; node < links_->num_nodes(); ++node) {
      matcher_.open(links_->ranks_of(node));
      matcher_.settle_in_order();
    }
    matcher_.open(indices<RankId>(home_load_.size()));
    matcher_.settle();
  }

  // Reserves all memory of a shape at its first step, whichever path the step takes.
  void reserve(const LayerPlacement& placement) {
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
    borrowed_.reserve(ranks);
  }

  void add_home_loads(const Step& step) {
    home_load_.assign(static_cast<std::size_t>(step.placement.num_ranks()), 0);
    std::ranges::copy(step.base_load, home_load_.begin());
    for (const auto& slot : slots_.all()) home_load_[slot.rank.offset()] += slot.share;
  }

  bool within_threshold(std::int64_t total) const {
    const Wide largest = std::ranges::max(home_load_);
    return largest * static_cast<Wide>(home_load_.size()) * 1000 <
           Wide{options_.imbalance_threshold_thousandths} * total;
  }

  std::int64_t ideal_worst(std::int64_t total, std::span<const std::int64_t> base_load) const {
    const auto ranks = static_cast<std::int64_t>(home_load_.size());
    const std::int64_t mean = total / ranks + (total % ranks != 0);
    return base_load.empty() ? mean : std::max(mean, std::ranges::max(base_load));
  }

  // Fills moves_; returns its worst rank load.
  std::int64_t search_worst(std::int64_t ideal) {
    if (settle_at(ideal)) {
      moves_.assign(matcher_.moves().begin(), matcher_.moves().end());
      return ideal;
    }
    std::int64_t best = std::ranges::max(home_load_);  // with no move at all
    moves_.clear();
    const auto keep = [&](std::int64_t target) {
      const std::int64_t worst = target + std::ranges::max(matcher_.balance());
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

  bool settle_at(std::int64_t worst) {
    reset_matcher(worst);
    return matcher_.settle();
  }

  void reset_matcher(std::int64_t worst) {
    balance_.resize(home_load_.size());
    std::ranges::transform(home_load_, balance_.begin(), [=](std::int64_t load) { return load - worst; });
    matcher_.reset(slots_, balance_, options_.min_segment, borrow_slots_);
  }

  // Least-loaded's last piece of an expert may be below min_segment, so its worst rank can be lower.
  bool least_loaded_is_lower(std::int64_t worst, const Step& step) {
    least_loaded_.plan(step.counts, step.placement, step.plan, step.base_load);
    return step.plan.worst_load(step.base_load) < worst && fits_slots(step.plan);
  }

  bool fits_slots(const StepPlan& plan) {
    borrowed_.assign(home_load_.size(), 0);
    for (const Transfer& transfer : plan.transfers()) ++borrowed_[transfer.to.offset()];
    return std::ranges::max(borrowed_) <= borrow_slots_;
  }

  void write_moves(const Step& step, StepPlan& plan, const LinkTimes* links) {
    rest_.resize(slots_.size());
    std::ranges::transform(slots_.all(), rest_.begin(), &HomeSlots::Slot::share);
    for (const Move& m : moves_) rest_[m.slot.offset()] -= m.amount;
    if (step.counts.has_sources()) internal::LocalRows(step.counts, slots_, rest_, moves_, links).improve();
    group_moves(step.counts.num_experts());
    plan.begin(step.placement);
    for (ExpertId expert : indices<ExpertId>(step.counts.num_experts())) {
      if (step.counts.load(expert) == 0) continue;
      plan.begin_expert(expert);
      for (SlotId slot : slots_.copies(expert))
        if (rest_[slot.offset()] > 0) plan.give(slots_[slot].rank, rest_[slot.offset()]);
      for (std::size_t i = first_move_[expert.offset()]; i < moves_.size(); i = next_move_[i])
        plan.give(moves_[i].to, moves_[i].amount);
    }
  }

  // Links each expert's moves in the order they were made.
  void group_moves(int num_experts) {
    first_move_.assign(static_cast<std::size_t>(num_experts), moves_.size());
    next_move_.resize(moves_.size());
    for (std::size_t i = moves_.size(); i-- > 0;)
      next_move_[i] = std::exchange(first_move_[slots_[moves_[i].slot].expert.offset()], i);
  }

  PlannerOptions options_;
  HomeSlots slots_;
  std::vector<std::int64_t> home_load_;  // [P], base load included
  std::vector<std::int64_t> balance_;    // [P], home load - target
  internal::FreeMoves free_moves_;
  ExcessMatcher matcher_;
  LeastLoaded least_loaded_;
  std::vector<Move> moves_;              // of the best matching
  std::vector<std::int64_t> rest_;       // by slot, what stays home
  std::vector<std::size_t> first_move_;  // [E], the expert's first move; moves_.size() if it has none
  std::vector<std::size_t> next_move_;   // by move: the expert's next one
  std::vector<std::int64_t> borrowed_;   // [P], experts under least-loaded's plan
  std::int64_t borrow_slots_ = kUnlimitedSlots;
  std::optional<LinkTimes> links_;  // only if links differ
  StepPlan tried_;
};

Level::Level(const PlannerOptions& options) : search_(std::make_unique<Search>(options)) {}
Level::~Level() = default;

void Level::plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                 std::span<const std::int64_t> base_load) {
  search_->plan({counts, placement, base_load, plan});
}

}  // namespace evenkeel
