// Program 1 without an integer-program solver: layer by layer, then the totals of Eq. 13 where sizes are
// free.
#include <algorithm>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/clusters/internal/size_program.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/equal_totals.h"
#include "evenkeel/placement/internal/partition.h"
#include "evenkeel/placement/internal/partition_exchange.h"
#include "evenkeel/placement/internal/partition_search.h"
#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel {

namespace {

using internal::Clusters;
using internal::Partition;
using internal::PartitionTask;
using internal::SizeRule;
using internal::Wide;

constexpr std::int64_t kSearchSteps = std::int64_t{1} << 26;  // over all layers: a quarter of a second

std::vector<PartitionTask> tasks_of(const PlacementProblem& problem, const std::vector<int>& least,
                                    const std::vector<int>& most) {
  std::vector<PartitionTask> tasks;
  for (LayerId layer : indices<LayerId>(problem.profile.num_layers()))
    tasks.push_back({.loads = problem.profile.loads(layer), .least = least, .most = most});
  return tasks;
}

// Layers apart from each other: Eq. 13 is not asked here.
struct Layers {
  std::vector<Clusters> clusters;
  std::vector<Wide> bounds;

  Wide bound() const { return std::accumulate(bounds.begin(), bounds.end(), Wide{0}); }
};

Layers split_layers(const std::vector<PartitionTask>& tasks, const internal::Deadline& deadline) {
  Layers layers;
  const std::int64_t steps = kSearchSteps / static_cast<std::int64_t>(tasks.size());
  for (const PartitionTask& task : tasks) {
    if (deadline.passed()) {
      layers.clusters.push_back(largest_first(task));
      layers.bounds.push_back(deviation_bound(task));
      continue;
    }
    Partition partition = best_partition(task, steps, deadline);
    layers.clusters.push_back(std::move(partition.clusters));
    layers.bounds.push_back(partition.bound);
  }
  return layers;
}

Wide deviation_of(const std::vector<PartitionTask>& tasks, const std::vector<Clusters>& layers) {
  Wide sum = 0;
  for (std::size_t layer = 0; layer < tasks.size(); ++layer) sum += deviation(tasks[layer], layers[layer]);
  return sum;
}

// Sizes of the layers in turn, so that totals come out as they should whatever the loads.
std::vector<Clusters> even_sizes(const PlacementProblem& problem, const SizeRule& rule,
                                 const internal::Deadline& deadline) {
  std::vector<int> left = rule.total;
  std::vector<PartitionTask> tasks;
  const int layers = problem.profile.num_layers();
  for (LayerId layer : indices<LayerId>(layers)) {
    const int later = layers - 1 - layer.value();
    std::vector<int> sizes;
    int extra = problem.profile.num_experts();
    for (int of_rank : left) extra -= sizes.emplace_back(of_rank / (later + 1));
    for (std::size_t rank = 0; extra > 0; ++rank)
      if (left[rank] > sizes[rank] * (later + 1)) {
        ++sizes[rank];
        --extra;
      }
    for (std::size_t rank = 0; rank < left.size(); ++rank) left[rank] -= sizes[rank];
    tasks.push_back({.loads = problem.profile.loads(layer), .least = sizes, .most = sizes});
  }
  return split_layers(tasks, deadline).clusters;
}

// The bound of all layers under Eq. 13, and how it and the sizes came about.
struct Totals {
  Wide bound = 0;
  bool bound_has_totals = false;
  bool sizes_chosen_together = false;
};

// Clusters renumbered, or sizes chosen together, so that Eq. 13 holds.
Totals even_totals(const PlacementProblem& problem, const SizeRule& rule,
                   const std::vector<PartitionTask>& tasks, const internal::Deadline& deadline,
                   Layers& layers) {
  if (renumber_to_totals(tasks, rule.total, layers.clusters, deadline)) return {.bound = layers.bound()};
  const bool found = resize_to_totals(tasks, rule.total, layers.clusters, deadline);
  Totals totals{.bound = layers.bound(), .sizes_chosen_together = true};
  if (found && deviation_of(tasks, layers.clusters) == layers.bound()) return totals;
  std::vector<Clusters> even = even_sizes(problem, rule, deadline);
  if (!found || deviation_of(tasks, even) < deviation_of(tasks, layers.clusters))
    layers.clusters = std::move(even);
  const Wide known = deviation_of(tasks, layers.clusters);
  const bool is_small = problem.profile.num_experts() <= internal::PartitionSearch::kMostExperts &&
                        tasks.front().num_clusters() <= internal::SizeProgram::kMostClusters &&
                        rule.ranks_alike();
  if (known == layers.bound() || !is_small || deadline.passed()) return totals;
  internal::SizeProgram program(tasks, rule.total, layers.bounds, kSearchSteps / 64, deadline);
  program.improve(known, layers.clusters);
  if (!program.finished()) return totals;
  totals.bound = deviation_of(tasks, layers.clusters);
  totals.bound_has_totals = true;
  return totals;
}

Clustering clustering_of(const std::vector<PartitionTask>& tasks, std::vector<Clusters> layers, Wide bound) {
  const Wide objective = deviation_of(tasks, layers);
  const double clusters = tasks.front().num_clusters();
  return {.cluster_of = std::move(layers),
          .objective = static_cast<double>(objective) / clusters,
          .bound = static_cast<double>(bound) / clusters,
          .proven_optimal = objective == bound};
}

}  // namespace

Clustering cluster_fast(const PlacementProblem& problem, const SolveLimits& limits) {
  const internal::Deadline deadline(limits);
  const SizeRule rule = internal::size_rule(problem);
  const std::vector<PartitionTask> tasks = tasks_of(problem, rule.least, rule.most);
  Layers layers = split_layers(tasks, deadline);
  Totals totals{.bound = layers.bound()};
  if (problem.sizes == ClusterSizes::free) totals = even_totals(problem, rule, tasks, deadline, layers);
  Clustering clustering = clustering_of(tasks, std::move(layers.clusters), totals.bound);
  clustering.sizes_chosen_together = totals.sizes_chosen_together;
  clustering.bound_has_totals = totals.bound_has_totals;
  deadline.report(clustering.objective, clustering.bound);
  return clustering;
}

}  // namespace evenkeel
