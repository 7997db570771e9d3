#include "evenkeel/placement/clusters/internal/partition.h"

#include <algorithm>
#include <numeric>

namespace evenkeel::internal {

namespace {

Wide magnitude(Wide value) {
  return value < 0 ? -value : value;
}

Wide integrality_bound(std::span<const std::int64_t> loads, int num_clusters) {
  const std::int64_t unit =
      std::accumulate(loads.begin(), loads.end(), std::int64_t{0}, std::gcd<std::int64_t, std::int64_t>);
  if (unit == 0) return 0;
  const std::int64_t total = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  const Wide over = total / unit % num_clusters;
  return 2 * over * (num_clusters - over) * unit;
}

// Sums of the first i numbers.
std::vector<std::int64_t> running_sums(const std::vector<std::int64_t>& numbers) {
  std::vector<std::int64_t> sums(numbers.size() + 1, 0);
  std::partial_sum(numbers.begin(), numbers.end(), sums.begin() + 1);
  return sums;
}

std::vector<std::int64_t> running_sums(std::vector<int> sizes, bool smallest_first) {
  std::sort(sizes.begin(), sizes.end());
  if (!smallest_first) std::reverse(sizes.begin(), sizes.end());
  return running_sums(std::vector<std::int64_t>(sizes.begin(), sizes.end()));
}

Wide large_expert_bound(const PartitionTask& task) {
  std::vector<std::int64_t> ascending(task.loads.begin(), task.loads.end());
  std::sort(ascending.begin(), ascending.end());
  const std::vector<std::int64_t> light = running_sums(ascending);
  const std::vector<std::int64_t> least = running_sums(task.least, true);
  const std::vector<std::int64_t> most = running_sums(task.most, false);
  const int E = task.num_experts();
  const int P = task.num_clusters();
  const std::int64_t total = light.back();
  Wide worst = 0;
  for (int j = 1; j <= E; ++j) {
    const Wide heavy = total - light[static_cast<std::size_t>(E - j)];
    Wide lowest = -1;
    for (int u = 1; u <= std::min(j, P); ++u) {
      const auto at = static_cast<std::size_t>(u);
      const std::int64_t others = std::max<std::int64_t>(0, least[at] - j);
      if (most[at] < j || others > E - j) continue;
      const Wide excess = P * (heavy + light[static_cast<std::size_t>(others)]) - Wide{u} * total;
      if (lowest < 0 || excess < lowest) lowest = std::max<Wide>(excess, 0);
    }
    worst = std::max(worst, lowest);
  }
  return 2 * worst;
}

}  // namespace

std::vector<std::int64_t> cluster_loads(const PartitionTask& task, const Clusters& clusters) {
  std::vector<std::int64_t> sums(task.least.size(), 0);
  for (std::size_t expert = 0; expert < clusters.size(); ++expert)
    sums[static_cast<std::size_t>(clusters[expert])] += task.loads[expert];
  return sums;
}

Wide deviation(const PartitionTask& task, const Clusters& clusters) {
  const std::vector<std::int64_t> sums = cluster_loads(task, clusters);
  const Wide total = std::accumulate(sums.begin(), sums.end(), std::int64_t{0});
  Wide deviation = 0;
  for (std::int64_t sum : sums) deviation += magnitude(Wide{sum} * task.num_clusters() - total);
  return deviation;
}

Wide deviation_bound(const PartitionTask& task) {
  return std::max(integrality_bound(task.loads, task.num_clusters()), large_expert_bound(task));
}

bool is_better(const PartitionTask& task, const Clusters& one, const Clusters& other) {
  const Wide of_one = deviation(task, one);
  const Wide of_other = deviation(task, other);
  if (of_one != of_other) return of_one < of_other;
  return std::ranges::max(cluster_loads(task, one)) < std::ranges::max(cluster_loads(task, other));
}

Partition best_partition(const PartitionTask& task, std::int64_t search_steps, const Deadline& deadline) {
  Partition best{.clusters = exchanged_partition(task, deadline), .bound = deviation_bound(task)};
  best.deviation = deviation(task, best.clusters);
  if (best.proven() || task.num_experts() > kMostSearchedExperts || deadline.passed()) return best;
  const auto [found, finished] = search_partitions(task, best.deviation, search_steps);
  if (!found.empty()) {
    best.clusters = found;
    best.deviation = deviation(task, found);
    Clusters evened = found;
    exchange(task, evened, deadline);
    if (is_better(task, evened, best.clusters)) best.clusters = evened;
  }
  if (finished) best.bound = best.deviation;
  return best;
}

}  // namespace evenkeel::internal
