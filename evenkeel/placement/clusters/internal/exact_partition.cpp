#include "evenkeel/placement/clusters/internal/exact_partition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "evenkeel/placement/clusters/internal/cluster_program.h"

namespace evenkeel::internal {

namespace {

double total_of(std::span<const std::int64_t> loads) {
  return static_cast<double>(std::accumulate(loads.begin(), loads.end(), std::int64_t{0}));
}

using Subset = std::uint32_t;

// A dynamic program over subsets: best[k][S] is the least deviation of clusters 0..k-1 that hold exactly the
// experts of S. If ranks are alike, clusters are interchangeable, so the last one must hold the lowest expert
// of S.
class SubsetProgram {
 public:
  SubsetProgram(std::span<const std::int64_t> loads, const SizeRule& rule, const Deadline& deadline)
      : rule_(rule),
        deadline_(deadline),
        all_((Subset{1} << loads.size()) - 1),
        deviation_(all_ + std::size_t{1}) {
    std::vector<double> sum(deviation_.size());
    const double total = total_of(loads);
    for (std::size_t s = 0; s < sum.size(); ++s) {
      if (s != 0)
        sum[s] = sum[s & (s - 1)] + static_cast<double>(loads[static_cast<std::size_t>(std::countr_zero(s))]);
      deviation_[s] = std::abs(rule.num_ranks * sum[s] - total);
    }
  }

  // Returns false if the deadline ended it.
  bool run() {
    best_.assign(1, std::vector<double>(deviation_.size(), kInfinity));
    best_[0][0] = 0;
    for (int clusters = 1; clusters <= rule_.num_ranks; ++clusters)
      if (!add_cluster(clusters)) return false;
    return true;
  }

  double optimum() const { return best_.back()[all_]; }

  std::vector<int> cluster_of(std::size_t num_experts) const {
    std::vector<int> cluster(num_experts);
    Subset left = all_;
    for (int k = rule_.num_ranks; k > 0; --k) {
      Subset chosen = 0;
      for_choices(k, left, [&](Subset choice) {
        if (value(k, left, choice) == best_[static_cast<std::size_t>(k)][left]) chosen = choice;
      });
      for (std::size_t e = 0; e < num_experts; ++e)
        if (chosen >> e & 1) cluster[e] = k - 1;
      left ^= chosen;
    }
    return cluster;
  }

 private:
  bool add_cluster(int clusters) {
    best_.emplace_back(deviation_.size(), kInfinity);
    const auto k = static_cast<std::size_t>(clusters);
    const auto least =
        std::accumulate(rule_.in_layer.least.begin(), rule_.in_layer.least.begin() + clusters, 0);
    const auto most = std::accumulate(rule_.in_layer.most.begin(), rule_.in_layer.most.begin() + clusters, 0);
    const bool last = clusters == rule_.num_ranks;
    for (Subset s = last ? all_ : 0; s <= all_; ++s) {
      if ((s & 0xfff) == 0 && deadline_.passed()) return false;
      const int size = std::popcount(s);
      if (size < least || size > most) continue;
      double lowest = kInfinity;
      for_choices(clusters, s, [&](Subset choice) { lowest = std::min(lowest, value(clusters, s, choice)); });
      best_[k][s] = lowest;
    }
    return true;
  }

  double value(int clusters, Subset s, Subset choice) const {
    return best_[static_cast<std::size_t>(clusters) - 1][s ^ choice] + deviation_[choice];
  }

  // Calls f for every subset of s that may be the last of `clusters` clusters.
  template <class F>
  void for_choices(int clusters, Subset s, F f) const {
    const int least = rule_.in_layer.least[static_cast<std::size_t>(clusters) - 1];
    const int most = rule_.in_layer.most[static_cast<std::size_t>(clusters) - 1];
    const Subset always = rule_.ranks_alike ? s & (~s + 1) : 0;
    const Subset rest = s ^ always;
    if (least == 0 && always != 0) f(Subset{0});
    for (Subset some = rest;; some = (some - 1) & rest) {
      const int size = std::popcount(some | always);
      if (size >= least && size <= most) f(some | always);
      if (some == 0) return;
    }
  }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const SizeRule& rule_;
  const Deadline& deadline_;
  Subset all_;
  std::vector<double> deviation_;          // of a cluster that holds the subset
  std::vector<std::vector<double>> best_;  // [clusters][subset]
};

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

bool partition_by_program(std::span<const std::int64_t> loads, const SizeRule& rule, double seconds,
                          const Deadline& deadline, ExactPartition& partition) {
  const ClusterProgram program({loads}, rule, /*has_total_constraints=*/false, {partition.bound});
  const ProgramAnswer answer = program.solve_from({partition.cluster_of}, seconds, deadline);
  if (!answer.values.empty()) {
    const std::vector<int> found = program.clusters_of(answer.values).front();
    const double deviation = deviation_of(loads, found, rule.num_ranks);
    if (deviation < partition.deviation) {
      partition.cluster_of = found;
      partition.deviation = deviation;
    }
  }
  const double bound = whole_bound(answer.bound);
  partition.bound = std::min(partition.deviation, std::max(partition.bound, bound));
  return partition.bound == partition.deviation || answer.end != ProgramAnswer::End::interrupted;
}

double subset_steps(const SizeRule& rule) {
  double steps = 0;
  int least = 0;
  int most = 0;
  for (int k = 0; k + 1 < rule.num_ranks; ++k) {
    least += rule.in_layer.least[static_cast<std::size_t>(k)];
    most += rule.in_layer.most[static_cast<std::size_t>(k)];
    double subsets = 1;
    for (int size = 0; size <= rule.num_experts; ++size) {
      if (k > 0 && size >= least && size <= most)
        steps += subsets * std::pow(2.0, size - (rule.ranks_alike ? 1 : 0));
      subsets *= static_cast<double>(rule.num_experts - size) / (size + 1);
    }
  }
  return steps + std::pow(2.0, rule.num_experts) * rule.num_ranks;
}

bool partition_by_subsets(std::span<const std::int64_t> loads, const SizeRule& rule, const Deadline& deadline,
                          ExactPartition& partition) {
  SubsetProgram program(loads, rule, deadline);
  if (!program.run()) return false;
  if (program.optimum() < partition.deviation) {
    partition.cluster_of = program.cluster_of(loads.size());
    partition.deviation = program.optimum();
  }
  partition.bound = partition.deviation;
  return true;
}

}  // namespace evenkeel::internal
