// Program 1 without an integer-program solver: layer by layer, then the totals of Eq. 13 if sizes are free.
#include <algorithm>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/clusters/internal/equal_totals.h"
#include "evenkeel/placement/clusters/internal/partition.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel {

namespace {

using internal::Clusters;
using internal::Partition;
using internal::PartitionTask;
using internal::SizeRule;
using internal::TotalsMet;
using internal::Wide;

constexpr std::int64_t kSearchSteps = std::int64_t{1} << 26;  // over all layers: a quarter of a second

// Layers solved independently, without Eq. 13.
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

// Chooses the sizes of the layers in turn so that totals hold, whatever the loads.
std::vector<Clusters> even_sizes(const std::vector<PartitionTask>& tasks, std::vector<int> left,
                                 const internal::Deadline& deadline) {
  std::vector<PartitionTask> sized;
  for (int later = static_cast<int>(tasks.size()); later-- > 0;) {
    const PartitionTask& task = tasks[sized.size()];
    std::vector<int> sizes;
    int extra = task.num_experts();
    for (int of_rank : left) extra -= sizes.emplace_back(of_rank / (later + 1));
    for (std::size_t rank = 0; extra > 0; ++rank)
      if (left[rank] > sizes[rank] * (later + 1)) {
        ++sizes[rank];
        --extra;
      }
    for (std::size_t rank = 0; rank < left.size(); ++rank) left[rank] -= sizes[rank];
    sized.push_back({.loads = task.loads, .least = sizes, .most = sizes});
  }
  return split_layers(sized, deadline).clusters;
}

// Renumbers clusters, or chooses sizes together, so that Eq. 13 holds; sets flags of `answer` accordingly.
// Returns the bound of all layers.
Wide even_totals(const SizeRule& rule, const std::vector<PartitionTask>& tasks,
                 const internal::Deadline& deadline, Layers& layers, Clustering& answer) {
  const std::vector<int> total = rule.in_all.dealt(rule.num_experts * rule.num_layers);
  const Wide bound = layers.bound();
  const TotalsMet met = meet_totals(tasks, total, layers.clusters, deadline);
  if (met == TotalsMet::by_numbers) return bound;
  answer.sizes_chosen_together = true;
  const bool found = met == TotalsMet::by_sizes;
  if (found && deviation_of(tasks, layers.clusters) == bound) return bound;
  std::vector<Clusters> even = even_sizes(tasks, total, deadline);
  if (!found || deviation_of(tasks, even) < deviation_of(tasks, layers.clusters))
    layers.clusters = std::move(even);
  const Wide known = deviation_of(tasks, layers.clusters);
  const bool is_small = rule.num_experts <= internal::kMostSearchedExperts &&
                        rule.num_ranks <= internal::kMostSizedClusters &&
                        internal::all_alike(rule.capacities);
  if (known == bound || !is_small || deadline.passed()) return bound;
  answer.bound_has_totals =
      improve_sizes(tasks, total, layers.bounds, known, kSearchSteps / 64, deadline, layers.clusters);
  return answer.bound_has_totals ? deviation_of(tasks, layers.clusters) : bound;
}

}  // namespace

Clustering cluster_fast(const PlacementProblem& problem, const SolveLimits& limits) {
  const internal::Deadline deadline(limits);
  const SizeRule rule = internal::size_rule(problem);
  std::vector<int> least = rule.in_layer.least;
  std::vector<int> most = rule.capacities;
  if (!rule.has_totals()) least = most = rule.in_layer.dealt(rule.num_experts);
  std::vector<PartitionTask> tasks;
  for (LayerId layer : indices<LayerId>(rule.num_layers))
    tasks.push_back({.loads = problem.profile.loads(layer), .least = least, .most = most});
  Layers layers = split_layers(tasks, deadline);
  Clustering answer;
  const Wide bound = rule.has_totals() ? even_totals(rule, tasks, deadline, layers, answer) : layers.bound();
  const Wide objective = deviation_of(tasks, layers.clusters);
  answer.cluster_of = std::move(layers.clusters);
  answer.objective = static_cast<double>(objective) / rule.num_ranks;
  answer.bound = static_cast<double>(bound) / rule.num_ranks;
  answer.proven_optimal = objective == bound;
  answer.ended_by_time = !answer.proven_optimal && deadline.passed() && !deadline.stop_requested();
  deadline.report(answer.objective, answer.bound);
  return answer;
}

}  // namespace evenkeel
