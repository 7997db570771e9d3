#include "evenkeel/placement/clusters/internal/exact_partition.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/placement/clusters/internal/cluster_program.h"
#include "evenkeel/placement/internal/program/solve.h"

namespace evenkeel::exact {

namespace {

double total_of(std::span<const std::int64_t> loads) {
  return static_cast<double>(std::accumulate(loads.begin(), loads.end(), std::int64_t{0}));
}

}  // namespace

double deviation_of(std::span<const std::int64_t> loads, const std::vector<int>& cluster_of,
                    int num_clusters) {
  std::vector<double> sums(static_cast<std::size_t>(num_clusters), 0.0);
  for (std::size_t e = 0; e < loads.size(); ++e)
    sums[static_cast<std::size_t>(cluster_of[e])] += static_cast<double>(loads[e]);
  double deviation = 0;
  for (double sum : sums) deviation += std::abs(num_clusters * sum - total_of(loads));
  return deviation;
}

void partition_by_program(std::span<const std::int64_t> loads, const SizeRule& rule, double seconds,
                          const Monitor& monitor, Partition& partition) {
  const ClusterProgram program({loads}, rule, /*tied=*/false, {partition.bound});
  const std::vector<double> start = program.start_of({partition.cluster_of});
  const ProgramAnswer answer = solve(program.program(),
                                     {.seconds = seconds,
                                      .relative_gap = monitor.relative_gap(),
                                      .absolute_gap = 0.99 / program.unit(),
                                      .start = start,
                                      .unit = program.unit() / rule.num_ranks},
                                     monitor);
  if (!answer.values.empty()) {
    const std::vector<int> found = program.clusters_of(answer.values).front();
    const double deviation = deviation_of(loads, found, rule.num_ranks);
    if (deviation < partition.deviation) {
      partition.cluster_of = found;
      partition.deviation = deviation;
    }
  }
  // Deviations are whole numbers: a bound between two of them is the upper one.
  const double slack = 1e-6 * std::max(1.0, partition.deviation);
  const double bound = std::ceil(answer.bound * program.unit() - slack);
  partition.bound = std::min(partition.deviation, std::max(partition.bound, bound));
}

}  // namespace evenkeel::exact
