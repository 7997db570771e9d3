#include "evenkeel/placement/clusters/internal/cluster_program.h"

#include <algorithm>
#include <numeric>

namespace evenkeel::exact {

namespace {

// Numbers far above this lose to the solver's tolerances, which are absolute.
constexpr double largest_coefficient = 1e5;

std::vector<int> heaviest_first(std::span<const std::int64_t> loads) {
  std::vector<int> order(loads.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return loads[static_cast<std::size_t>(a)] > loads[static_cast<std::size_t>(b)];
  });
  return order;
}

}  // namespace

ClusterProgram::ClusterProgram(const std::vector<std::span<const std::int64_t>>& loads, const SizeRule& rule,
                               bool tied, const std::vector<double>& deviation_floors)
    : rule_(rule), tied_(tied) {
  std::int64_t largest = 0;
  for (const auto& layer : loads) largest = std::max(largest, *std::max_element(layer.begin(), layer.end()));
  unit_ = std::max(1.0, static_cast<double>(largest) * rule.num_ranks / largest_coefficient);
  for (std::size_t layer = 0; layer < loads.size(); ++layer) {
    add_layer(loads[layer], deviation_floors[layer]);
    if (rule.ranks_alike && (!tied || layer == 0)) break_symmetry(layer);
  }
  if (tied) tie_layers();
}

void ClusterProgram::add_layer(std::span<const std::int64_t> loads, double deviation_floor) {
  const std::size_t layer = first_x_.size();
  first_x_.push_back(program_.num_columns());
  order_.push_back(heaviest_first(loads));
  for (int i = 0; i < rule_.num_ranks * rule_.num_experts; ++i) program_.add_binary();
  std::vector<Term> row;
  for (int expert = 0; expert < rule_.num_experts; ++expert) {
    row.clear();
    for (int cluster = 0; cluster < rule_.num_ranks; ++cluster) row.push_back({x(layer, cluster, expert)});
    program_.add_row({1, 1}, row);
  }
  for (int cluster = 0; cluster < rule_.num_ranks; ++cluster) {
    row.clear();
    for (int expert = 0; expert < rule_.num_experts; ++expert) row.push_back({x(layer, cluster, expert)});
    const auto c = static_cast<std::size_t>(cluster);
    program_.add_row({static_cast<double>(rule_.least[c]), static_cast<double>(rule_.most[c])}, row);
  }
  add_deviations(loads, layer, deviation_floor);
}

void ClusterProgram::add_deviations(std::span<const std::int64_t> loads, std::size_t layer,
                                    double deviation_floor) {
  const double total =
      static_cast<double>(std::accumulate(loads.begin(), loads.end(), std::int64_t{0})) / unit_;
  std::vector<Term> all;
  for (int cluster = 0; cluster < rule_.num_ranks; ++cluster) {
    const int d = program_.add_column({0, infinity}, 1);
    all.push_back({d});
    std::vector<Term> row;
    for (int expert = 0; expert < rule_.num_experts; ++expert)
      row.push_back({x(layer, cluster, expert),
                     rule_.num_ranks * static_cast<double>(loads[static_cast<std::size_t>(expert)]) / unit_});
    row.push_back({d, -1});
    program_.add_row({-infinity, total}, row);  // P T - d <= total
    row.back().coefficient = 1;
    program_.add_row({total, infinity}, row);  // P T + d >= total
  }
  program_.add_row({deviation_floor / unit_, infinity}, all);
}

// The i-th expert of the order may be in cluster c only if one before it is in cluster c-1.
void ClusterProgram::break_symmetry(std::size_t layer) {
  if (rule_.least.front() == 0) return;  // an empty cluster begins nowhere
  std::vector<Term> row;
  for (int i = 0; i < rule_.num_experts; ++i)
    for (int cluster = 1; cluster < rule_.num_ranks; ++cluster) {
      const int column = x(layer, cluster, order_[layer][static_cast<std::size_t>(i)]);
      if (cluster > i) {
        program_.columns[static_cast<std::size_t>(column)].upper = 0;
        continue;
      }
      row.assign(1, {column});
      for (int before = 0; before < i; ++before)
        row.push_back({x(layer, cluster - 1, order_[layer][static_cast<std::size_t>(before)]), -1});
      program_.add_row({-infinity, 0}, row);
    }
}

void ClusterProgram::tie_layers() {
  for (int cluster = 0; cluster < rule_.num_ranks; ++cluster) {
    std::vector<Term> row;
    for (std::size_t layer = 0; layer < first_x_.size(); ++layer)
      for (int expert = 0; expert < rule_.num_experts; ++expert) row.push_back({x(layer, cluster, expert)});
    const auto c = static_cast<std::size_t>(cluster);
    program_.add_row({static_cast<double>(rule_.total_least[c]), static_cast<double>(rule_.total_most[c])},
                     row);
  }
}

std::vector<double> ClusterProgram::start_of(const std::vector<std::vector<int>>& cluster_of) const {
  std::vector<double> start(program_.columns.size(), 0.0);
  std::vector<int> name(static_cast<std::size_t>(rule_.num_ranks));
  std::iota(name.begin(), name.end(), 0);
  for (std::size_t layer = 0; layer < cluster_of.size(); ++layer) {
    if (rule_.ranks_alike && rule_.least.front() > 0 && (!tied_ || layer == 0)) {
      std::fill(name.begin(), name.end(), -1);
      int next = 0;
      for (int expert : order_[layer]) {
        int& named = name[static_cast<std::size_t>(cluster_of[layer][static_cast<std::size_t>(expert)])];
        if (named < 0) named = next++;
      }
    }
    for (int expert = 0; expert < rule_.num_experts; ++expert) {
      const int cluster = name[static_cast<std::size_t>(cluster_of[layer][static_cast<std::size_t>(expert)])];
      start[static_cast<std::size_t>(x(layer, cluster, expert))] = 1;
    }
  }
  return start;
}

std::vector<std::vector<int>> ClusterProgram::clusters_of(const std::vector<double>& values) const {
  std::vector<std::vector<int>> cluster_of;
  for (std::size_t layer = 0; layer < first_x_.size(); ++layer) {
    cluster_of.emplace_back(static_cast<std::size_t>(rule_.num_experts));
    for (int cluster = 0; cluster < rule_.num_ranks; ++cluster)
      for (int expert = 0; expert < rule_.num_experts; ++expert)
        if (values[static_cast<std::size_t>(x(layer, cluster, expert))] > 0.5)
          cluster_of.back()[static_cast<std::size_t>(expert)] = cluster;
  }
  return cluster_of;
}

}  // namespace evenkeel::exact
