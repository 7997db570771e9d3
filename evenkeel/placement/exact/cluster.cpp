// MoETuner's first program: layer by layer, and all layers together where free sizes would leave ranks
// unequal totals.
#include <algorithm>
#include <limits>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/exact.h"
#include "evenkeel/placement/exact/internal/cluster_program.h"
#include "evenkeel/placement/exact/internal/methods.h"
#include "evenkeel/placement/exact/internal/monitor.h"
#include "evenkeel/placement/exact/internal/partition.h"
#include "evenkeel/placement/exact/internal/rank_program.h"
#include "evenkeel/placement/exact/internal/sizes.h"
#include "evenkeel/placement/exact/internal/solve.h"
#include "evenkeel/placement/internal/problem_check.h"

namespace evenkeel {

namespace exact {
namespace {

constexpr double most_subset_steps = 1e9;  // some seconds
constexpr int most_subset_experts = 22;    // 2^22 numbers a cluster

using Clusters = std::vector<std::vector<int>>;

class ClusterSolve {
 public:
  ClusterSolve(const PlacementProblem& problem, const Clustering& start, const SolveLimits& limits,
               const Methods& methods)
      : problem_(problem),
        rule_(size_rule(problem)),
        given_(start.cluster_of),
        monitor_(limits),
        by_subsets_(methods.subsets && rule_.num_experts <= most_subset_experts &&
                    subset_steps(rule_) <= most_subset_steps) {
    if (!given_.empty()) internal::require_clusters(problem, given_);
    const Clusters own = contiguous_clusters(rule_);
    for (int layer = 0; layer < rule_.num_layers; ++layer)
      layers_.push_back(begin(layer, own[static_cast<std::size_t>(layer)]));
  }

  Clustering run() {
    for (int layer = 0; layer < rule_.num_layers; ++layer) solve_layer(layer);
    if (rule_.has_totals() && !may_have_equal_totals()) return solve_together();
    return answer(false);
  }

 private:
  std::span<const std::int64_t> loads(int layer) const { return problem_.profile.loads(LayerId(layer)); }

  Partition begin(int layer, const std::vector<int>& own) const {
    Partition partition{.cluster_of = own, .bound = deviation_floor(loads(layer), rule_)};
    partition.deviation = deviation_of(loads(layer), own, rule_.num_ranks);
    if (given_.empty()) return partition;
    const auto sizes = sizes_of(given_, rule_)[static_cast<std::size_t>(layer)];
    const std::vector<int> name = fit_to_ranks(sizes, rule_);
    if (name.empty()) return partition;
    std::vector<int> given = given_[static_cast<std::size_t>(layer)];
    for (int& cluster : given) cluster = name[static_cast<std::size_t>(cluster)];
    const double deviation = deviation_of(loads(layer), given, rule_.num_ranks);
    if (deviation > partition.deviation) return partition;
    partition.cluster_of = given;
    partition.deviation = deviation;
    return partition;
  }

  void solve_layer(int layer) {
    Partition& partition = layers_[static_cast<std::size_t>(layer)];
    if (partition.deviation <= partition.bound || monitor_.must_end()) return;
    monitor_.set_rest((total_deviation() - partition.deviation) / rule_.num_ranks,
                      (total_bound() - partition.bound) / rule_.num_ranks);
    if (by_subsets_)
      partition_by_subsets(loads(layer), rule_, monitor_, partition);
    else
      partition_by_program(loads(layer), rule_, monitor_.seconds_left() / (rule_.num_layers - layer),
                           monitor_, partition);
    monitor_.report(partition.deviation / rule_.num_ranks, partition.bound / rule_.num_ranks);
  }

  double total_deviation() const {
    double sum = 0;
    for (const Partition& layer : layers_) sum += layer.deviation;
    return sum;
  }
  double total_bound() const {
    double sum = 0;
    for (const Partition& layer : layers_) sum += layer.bound;
    return sum;
  }

  Clusters clusters() const {
    Clusters all;
    for (const Partition& layer : layers_) all.push_back(layer.cluster_of);
    return all;
  }

  // Eq. 13 can be met with the sizes that the layers chose alone.
  bool may_have_equal_totals() const {
    return !ranks_with_equal_totals(sizes_of(clusters(), rule_), rule_, monitor_).empty();
  }

  Clustering solve_together() {
    std::vector<std::span<const std::int64_t>> all_loads;
    std::vector<double> floors;
    for (int layer = 0; layer < rule_.num_layers; ++layer) {
      all_loads.push_back(loads(layer));
      floors.push_back(layers_[static_cast<std::size_t>(layer)].bound);
    }
    const ClusterProgram program(all_loads, rule_, /*tied=*/true, floors);
    const Clusters given = together_from();
    std::vector<double> start;
    if (!given.empty()) start = program.start_of(given);
    monitor_.set_rest(0, 0);
    const ProgramAnswer found = solve(program.program(),
                                      {.seconds = monitor_.seconds_left(),
                                       .relative_gap = monitor_.relative_gap(),
                                       .absolute_gap = 0.99 / program.unit(),
                                       .start = start,
                                       .unit = program.unit() / rule_.num_ranks},
                                      monitor_);
    return take(program, found, given);
  }

  // The better of what was given and what is contiguous, where cluster c may lie on rank c in every layer.
  Clusters together_from() const {
    Clusters best;
    double least = std::numeric_limits<double>::infinity();
    for (const Clusters& clusters : {given_, contiguous_clusters(rule_)}) {
      if (clusters.empty() || !lie_as_named(sizes_of(clusters, rule_), rule_)) continue;
      double deviation = 0;
      for (int layer = 0; layer < rule_.num_layers; ++layer)
        deviation += deviation_of(loads(layer), clusters[static_cast<std::size_t>(layer)], rule_.num_ranks);
      if (deviation >= least) continue;
      best = clusters;
      least = deviation;
    }
    return best;
  }

  Clustering take(const ClusterProgram& program, const ProgramAnswer& found, const Clusters& start) {
    const Clusters best = found.values.empty() ? start : program.clusters_of(found.values);
    if (found.end == ProgramAnswer::End::infeasible)
      throw Infeasible(
          "no sizes give every rank the same total of experts over all layers (Eq. 13) within its room");
    if (best.empty())
      throw Infeasible(
          "no sizes that give every rank the same total of experts over all layers (Eq. 13) were found "
          "in time; allow more of it");
    const double bound = std::max(total_bound(), found.bound * program.unit() * (1 - 1e-6));
    for (int layer = 0; layer < rule_.num_layers; ++layer) {
      Partition& partition = layers_[static_cast<std::size_t>(layer)];
      partition.cluster_of = best[static_cast<std::size_t>(layer)];
      partition.deviation = deviation_of(loads(layer), partition.cluster_of, rule_.num_ranks);
    }
    Clustering clustering = answer(true);
    clustering.bound = bound / rule_.num_ranks;
    const bool proven = found.end == ProgramAnswer::End::optimal && monitor_.relative_gap() == 0;
    settle(clustering, clustering.objective, clustering.bound, proven);
    return clustering;
  }

  Clustering answer(bool together) const {
    Clustering clustering{.cluster_of = clusters(),
                          .objective = total_deviation() / rule_.num_ranks,
                          .bound = total_bound() / rule_.num_ranks,
                          .sizes_chosen_together = together};
    settle(clustering, clustering.objective, clustering.bound, false);
    return clustering;
  }

  const PlacementProblem& problem_;
  SizeRule rule_;
  Clusters given_;
  Monitor monitor_;
  bool by_subsets_ = true;
  std::vector<Partition> layers_;
};

}  // namespace

Clustering cluster(const PlacementProblem& problem, const Clustering& start, const SolveLimits& limits,
                   const Methods& methods) {
  require_solver();
  return ClusterSolve(problem, start, limits, methods).run();
}

}  // namespace exact

Clustering cluster_exact(const PlacementProblem& problem, const Clustering& start,
                         const SolveLimits& limits) {
  return exact::cluster(problem, start, limits, {});
}

}  // namespace evenkeel
