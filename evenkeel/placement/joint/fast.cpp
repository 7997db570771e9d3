// Balance and traffic together: the two-stage answer, then changes of one layer at a time that lower the
// predicted milliseconds.
//
// Method      In each layer, an expert on a rank that decides the cost (the slowest compute, or an end of the
//             slowest pair) swaps with the expert elsewhere that lowers the cost most; where sizes differ by
//             one, it may also move without a swap. Layers in turn until none changes.
//             With free sizes the same from the answer of equal sizes too, and the better one counts if it
//             gives ranks equal totals (Eq. 13), as it does where P divides E.
// Guarantee   Never worse than the two-stage answer; sizes, capacities and totals as there.
#include <algorithm>
#include <optional>

#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/problem_check.h"
#include "evenkeel/placement/internal/size_rule.h"
#include "evenkeel/placement/joint/internal/joint_bound.h"
#include "evenkeel/placement/joint/internal/joint_cost.h"
#include "evenkeel/placement/joint/joint.h"
#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel {

namespace {

using internal::Homes;
using internal::JointCost;

constexpr double kLeastJointGain = 1e-12;  // of the cost: less is rounding

Homes two_stage_homes(const PlacementProblem& problem, const internal::Deadline& deadline) {
  const Clustering clustering = cluster_fast(problem, deadline.left());
  return rank_of_experts(clustering, assign_ranks_fast(problem, clustering, deadline.left()));
}

class LayerSearch {
 public:
  LayerSearch(const PlacementProblem& problem, JointCost& cost, std::size_t layer)
      : problem_(problem),
        cost_(cost),
        layer_(layer),
        sizes_(internal::cluster_sizes(cost.homes()[layer], problem.topology.num_ranks())) {
    cost.enter(layer);
  }

  bool run(const internal::Deadline& deadline) {
    bool improved = false;
    while (!deadline.passed() && improve_once(deadline)) improved = true;
    return improved;
  }

 private:
  // Each expert on a rank that decides takes its best change at once.
  bool improve_once(const internal::Deadline& deadline) {
    bool improved = false;
    for (std::size_t x = 0; x < cost_.homes()[layer_].size() && !deadline.passed(); ++x) {
      const std::vector<std::size_t> critical = cost_.critical_ranks();
      const auto home = static_cast<std::size_t>(cost_.homes()[layer_][x]);
      if (std::ranges::count(critical, home) == 0) continue;
      best_.reset();
      best_ms_ = cost_.layer_ms() * (1 - kLeastJointGain);
      try_expert(x);
      if (!best_) continue;
      carry_out(*best_);
      improved = true;
    }
    return improved;
  }

  void carry_out(const JointCost::Change& change) {
    if (!change.y) {
      --sizes_[static_cast<std::size_t>(cost_.homes()[layer_][change.x])];
      ++sizes_[change.to];
    }
    cost_.carry_out(change);
  }

  void try_expert(std::size_t x) {
    const std::vector<int>& homes = cost_.homes()[layer_];
    for (std::size_t y = 0; y < homes.size(); ++y)
      if (homes[y] != homes[x]) try_change({x, y, static_cast<std::size_t>(homes[y])});
    for (std::size_t rank = 0; rank < sizes_.size(); ++rank)
      if (may_move(static_cast<std::size_t>(homes[x]), rank)) try_change({x, std::nullopt, rank});
  }

  void try_change(const JointCost::Change& change) {
    const double ms = cost_.layer_ms_after(change, best_ms_);
    if (ms >= best_ms_) return;
    best_ms_ = ms;
    best_ = change;
  }

  // Sizes of the layer stay the same, up to their order.
  bool may_move(std::size_t from, std::size_t to) const {
    return problem_.sizes == ClusterSizes::equal && sizes_[from] == sizes_[to] + 1 &&
           sizes_[from] <= problem_.topology.capacity(RankId(to)).value_or(sizes_[from]);
  }

  const PlacementProblem& problem_;
  JointCost& cost_;
  std::size_t layer_;
  std::vector<int> sizes_;  // [P]
  std::optional<JointCost::Change> best_;
  double best_ms_ = 0;
};

// From the two-stage answer of the problem, to milliseconds near the bound at best.
JointSolution search(const PlacementProblem& problem, double bound, const internal::Deadline& deadline) {
  Homes start = two_stage_homes(problem, deadline);
  JointCost cost(problem, start);
  const double start_ms = cost.ms();
  bool changed = false;
  for (bool improved = true; improved && !deadline.passed() && !deadline.close_enough(cost.ms(), bound);) {
    improved = false;
    for (std::size_t layer = 0; layer < start.size() && !deadline.passed(); ++layer)
      improved |= LayerSearch(problem, cost, layer).run(deadline);
    changed |= improved;
    deadline.report(cost.ms(), bound);
  }
  Homes homes = cost.homes();
  const double ms = changed ? JointCost(problem, homes).ms() : start_ms;
  if (ms > start_ms) homes = std::move(start);
  return {.rank_of_expert = std::move(homes), .objective_ms = std::min(ms, start_ms)};
}

}  // namespace

JointSolution place_jointly_fast(const PlacementProblem& problem, const SolveLimits& limits) {
  internal::require_traffic(problem);
  const internal::Deadline deadline(limits);
  const double bound = internal::joint_bound(problem, deadline).total_ms;
  JointSolution best = search(problem, bound, deadline);
  if (problem.sizes == ClusterSizes::free) {
    PlacementProblem with_equal_sizes = problem;
    with_equal_sizes.sizes = ClusterSizes::equal;
    JointSolution equal = search(with_equal_sizes, bound, deadline);
    const auto sizes = internal::sizes_of(equal.rank_of_expert, problem.topology.num_ranks());
    if (equal.objective_ms < best.objective_ms && lie_as_named(sizes, internal::size_rule(problem)))
      best = std::move(equal);
  }
  best.bound_ms = bound;
  internal::conclude(best, best.objective_ms, best.bound_ms, false);
  return best;
}

}  // namespace evenkeel
