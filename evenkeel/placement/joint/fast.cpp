// Balance and traffic together: starts from the two-stage answer and changes one layer at a time to lower the
// predicted milliseconds.
//
// Method      Only experts on a rank that decides a layer's cost are changed: the rank with the slowest
//             compute, or an end of the slowest pair. Such an expert swaps with the expert elsewhere that
//             lowers the cost most. It may also move without a swap where sizes differ by one. Layers are
//             searched in turn until none changes. With copies the search starts from any placement of them.
//             A slot may also go to a copy of another expert: an expert on a deciding rank gives up its slot,
//             or gets a further slot elsewhere. With free sizes a second search starts from the answer of
//             equal sizes. If its result gives ranks equal totals (Eq. 13), as it does where P divides E, the
//             better of the two results counts.
// Guarantee   Never worse than the two-stage answer or the given copies, with the same sizes, capacities and
//             totals.
#include <algorithm>
#include <optional>
#include <utility>

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

using internal::JointCost;

constexpr double kLeastJointGain = 1e-12;  // relative to the cost; a smaller gain is rounding

std::vector<std::vector<int>> two_stage_homes(const PlacementProblem& problem,
                                              const internal::Deadline& deadline) {
  const Clustering clustering = cluster_fast(problem, deadline.left());
  return rank_of_experts(clustering, assign_ranks_fast(problem, clustering, deadline.left()));
}

// What a search tries besides swaps: `moves` lets an expert without copies move to another rank if only the
// order of sizes changes; `copies` lets a slot go to another expert.
enum class ExtraChanges { moves, copies };

class LayerSearch {
 public:
  LayerSearch(const PlacementProblem& problem, JointCost& cost, LayerId layer, ExtraChanges extra_changes)
      : problem_(problem), cost_(cost), extra_changes_(extra_changes) {
    cost.enter(layer.offset());
    sizes_.resize(static_cast<std::size_t>(problem.topology.num_ranks()));
    for (const CopyRanks& homes : cost.homes())
      for (const int rank : homes) ++size(rank);
  }

  bool run(const internal::Deadline& deadline) {
    bool improved = false;
    while (!deadline.passed() && improve_once(deadline)) improved = true;
    return improved;
  }

 private:
  int& size(int rank) { return sizes_[static_cast<std::size_t>(rank)]; }
  static bool has(const CopyRanks& homes, int rank) { return std::ranges::count(homes, rank) > 0; }

  // Finds the best change of each expert on a deciding rank, and applies it before the next expert's turn.
  bool improve_once(const internal::Deadline& deadline) {
    bool improved = false;
    for (std::size_t x = 0; x < cost_.homes().size() && !deadline.passed(); ++x) {
      const std::vector<int> critical = cost_.critical_ranks();
      const CopyRanks& homes = cost_.homes()[x];
      best_.reset();
      best_ms_ = cost_.layer_ms() * (1 - kLeastJointGain);
      for (const int rank : homes)
        if (has(critical, rank)) try_to_leave(x, rank);
      if (extra_changes_ == ExtraChanges::copies &&
          std::ranges::find_first_of(homes, critical) != homes.end())
        try_more_copies(x);
      if (!best_) continue;
      if (best_->y == x) {
        --size(homes.front());
        ++size(best_->homes_of_x.front());
      }
      cost_.carry_out(*best_);
      improved = true;
    }
    return improved;
  }

  void try_to_leave(std::size_t x, int from) {
    const std::vector<CopyRanks>& homes = cost_.homes();
    for (std::size_t y = 0; y < homes.size(); ++y) {
      if (has(homes[y], from)) continue;
      for (const int to : homes[y])
        if (!has(homes[x], to)) try_change(x, from, to, y, to, from);
    }
    if (extra_changes_ == ExtraChanges::moves) {
      for (int to = 0; to < problem_.topology.num_ranks(); ++to)
        if (may_move(from, to)) try_change(x, from, to, x, from, to);
    } else if (homes[x].size() > 1) {
      for (std::size_t y = 0; y < homes.size(); ++y)
        if (!has(homes[y], from)) try_change(x, from, kNone, y, kNone, from);
    }
  }

  // Gives expert x a slot of an expert that has several copies.
  void try_more_copies(std::size_t x) {
    const std::vector<CopyRanks>& homes = cost_.homes();
    for (std::size_t y = 0; y < homes.size(); ++y) {
      if (homes[y].size() == 1) continue;
      for (const int rank : homes[y])
        if (!has(homes[x], rank)) try_change(x, kNone, rank, y, rank, kNone);
    }
  }

  // Expert x moves from x_from to x_to, and y from y_from to y_to; kNone adds or removes a copy.
  void try_change(std::size_t x, int x_from, int x_to, std::size_t y, int y_from, int y_to) {
    trial_.x = x;
    trial_.y = y;
    move(cost_.homes()[x], x_from, x_to, trial_.homes_of_x);
    move(cost_.homes()[y], y_from, y_to, trial_.homes_of_y);
    const double ms = cost_.layer_ms_after(trial_, best_ms_);
    if (ms >= best_ms_) return;
    best_ms_ = ms;
    best_ = trial_;
  }
  static void move(const CopyRanks& homes, int from, int to, CopyRanks& moved) {
    moved.clear();
    for (const int rank : homes)
      if (rank != from) moved.push_back(rank);
    if (to != kNone) moved.push_back(to);
  }

  // Whether a move keeps the layer's sizes, up to their order.
  bool may_move(int from, int to) {
    return problem_.sizes == ClusterSizes::equal && size(from) == size(to) + 1 &&
           size(from) <= problem_.topology.capacity(RankId(to)).value_or(size(from));
  }

  static constexpr int kNone = -1;

  const PlacementProblem& problem_;
  JointCost& cost_;
  ExtraChanges extra_changes_;
  std::vector<int> sizes_;  // [P]
  JointCost::Change trial_;
  std::optional<JointCost::Change> best_;
  double best_ms_ = 0;
};

// Changes `start` until nothing improves, or the milliseconds are close to the bound.
JointPlacement improved(const PlacementProblem& problem, Placement start, ExtraChanges extra_changes,
                        double bound, const internal::Deadline& deadline) {
  JointCost cost(problem, start);
  const double start_ms = cost.ms();
  bool changed = false;
  // A layer is closed after a search without improvement, and reopened when a layer that it exchanges with
  // changes.
  std::vector<char> open(static_cast<std::size_t>(start.num_layers()), true);
  for (bool improved = true; improved && !deadline.passed() && !deadline.close_enough(cost.ms(), bound);) {
    improved = false;
    for (std::size_t layer = 0; layer < open.size() && !deadline.passed(); ++layer) {
      if (!std::exchange(open[layer], false)) continue;
      if (!LayerSearch(problem, cost, LayerId(layer), extra_changes).run(deadline)) continue;
      improved = true;
      if (problem.traffic == TrafficModel::dispatch_combine) continue;
      if (layer > 0) open[layer - 1] = true;
      if (layer + 1 < open.size()) open[layer + 1] = true;
    }
    changed |= improved;
    deadline.report(cost.ms(), bound);
  }
  Placement found = cost.placement();
  const double ms = changed ? JointCost(problem, found).ms() : start_ms;
  if (ms > start_ms) found = std::move(start);
  return {.placement = std::move(found), .objective_ms = std::min(ms, start_ms), .bound_ms = bound};
}

// Searches from the two-stage answer of the problem.
JointSolution search(const PlacementProblem& problem, double bound, const internal::Deadline& deadline) {
  const JointPlacement found =
      improved(problem, placement_of(two_stage_homes(problem, deadline), problem.topology.num_ranks()),
               ExtraChanges::moves, bound, deadline);
  JointSolution solution{.rank_of_expert = {}, .objective_ms = found.objective_ms};
  for (LayerId layer : indices<LayerId>(found.placement.num_layers())) {
    auto& homes = solution.rank_of_expert.emplace_back();
    for (ExpertId expert : indices<ExpertId>(found.placement.num_experts()))
      homes.push_back(found.placement.layer(layer.value()).owner(expert).value());
  }
  return solution;
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
    if (equal.objective_ms < best.objective_ms && sizes_fit_ranks(sizes, internal::size_rule(problem)))
      best = std::move(equal);
  }
  best.bound_ms = bound;
  internal::conclude(best, best.objective_ms, best.bound_ms, false);
  return best;
}

JointPlacement place_copies_jointly(const PlacementProblem& problem, const Placement& start,
                                    std::span<const double> least_max_over_mean, const SolveLimits& limits) {
  internal::require_traffic(problem);
  const internal::Deadline deadline(limits);
  const double bound =
      internal::joint_bound_of_copies(problem, start.layer(0).most_natives(), least_max_over_mean, deadline)
          .total_ms;
  return improved(problem, start, ExtraChanges::copies, bound, deadline);
}

}  // namespace evenkeel
