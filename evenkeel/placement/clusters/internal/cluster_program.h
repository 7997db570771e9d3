// MoETuner's first program, term by term, for some of the layers at once.
//
//   x[c,e,l] in {0,1}                    expert e of layer l is in cluster c
//   T[c,l] = sum_e load[e,l] x[c,e,l]    Eq. 6, and Eq. 2 without its sum over t
//
//   d[c,l] >= +-(P T[c,l] - total)       the absolute value of Eq. 1 with the mean of Eq. 3, times P
//                                        so that all numbers are whole
//
//   min sum d                            Eq. 4, 5
//   least <= sum_e x[c,e,l] <= most      Eq. 7, or equal sizes
//   sum_c x[c,e,l] = 1                   not in the paper, and needed
//
// Clusters of one layer are interchangeable. Without total constraints, cluster c must begin after cluster
// c-1 in the order of experts. That keeps one of the P! numberings of every answer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/program/program.h"
#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

inline std::vector<int> heaviest_first(std::span<const std::int64_t> loads) {
  std::vector<int> order(loads.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return loads[static_cast<std::size_t>(a)] > loads[static_cast<std::size_t>(b)];
  });
  return order;
}

// Deviations are whole numbers, so a fractional bound is rounded up, after subtracting the solver's
// tolerance.
inline double whole_bound(double bound_of_program) {
  return std::ceil(bound_of_program - 1e-6 * std::max(1.0, std::abs(bound_of_program)));
}

class ClusterProgram {
 public:
  // loads[l] is [E]. `has_total_constraints`: the totals of the rule (Eq. 13) hold over these layers, with
  // cluster c on rank c. deviation_floors[l]: a lower bound on the deviation of that layer.
  ClusterProgram(const std::vector<std::span<const std::int64_t>>& loads, const SizeRule& rule,
                 bool has_total_constraints, const std::vector<double>& deviation_floors)
      : rule_(rule), has_total_constraints_(has_total_constraints) {
    std::int64_t largest = 0;
    for (const auto& layer : loads)
      largest = std::max(largest, *std::max_element(layer.begin(), layer.end()));
    unit_ = std::max(1.0, static_cast<double>(largest) * rule.num_ranks / kLargestCoefficient);
    for (std::size_t layer = 0; layer < loads.size(); ++layer) {
      add_layer(loads[layer], deviation_floors[layer]);
      floor_ += deviation_floors[layer];
      if (rule.ranks_alike && (!has_total_constraints || layer == 0)) break_symmetry(layer);
    }
    if (has_total_constraints) limit_totals();
  }

  // Starts from `known` clusters, if any. The returned bound is on the sum of |P load - total|. Stops once
  // these layers, or all layers together, are within the deadline's gap.
  ProgramAnswer solve_from(const std::vector<std::vector<int>>& known, double seconds,
                           const Deadline& deadline) const {
    const std::vector<double> start = known.empty() ? std::vector<double>{} : start_of(known);
    const double spare = deadline.spare_gap(floor_ / rule_.num_ranks) * rule_.num_ranks;
    ProgramAnswer answer = solve(program_,
                                 {.seconds = seconds,
                                  .absolute_gap = std::max(spare, 0.99) / unit_,
                                  .start = start,
                                  .unit = unit_ / rule_.num_ranks},
                                 deadline);
    answer.bound *= unit_;
    return answer;
  }
  std::vector<std::vector<int>> clusters_of(const std::vector<double>& values) const {
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

 private:
  // Coefficients far above this suffer from the solver's absolute tolerances.
  static constexpr double kLargestCoefficient = 1e5;

  // Renames clusters as symmetry breaking requires; experts of one cluster stay together.
  std::vector<double> start_of(const std::vector<std::vector<int>>& cluster_of) const {
    std::vector<double> start(program_.columns.size(), 0.0);
    std::vector<int> name(static_cast<std::size_t>(rule_.num_ranks));
    std::iota(name.begin(), name.end(), 0);
    for (std::size_t layer = 0; layer < cluster_of.size(); ++layer) {
      if (rule_.ranks_alike && rule_.in_layer.least.front() > 0 && (!has_total_constraints_ || layer == 0)) {
        std::fill(name.begin(), name.end(), -1);
        int next = 0;
        for (int expert : order_[layer]) {
          int& named = name[static_cast<std::size_t>(cluster_of[layer][static_cast<std::size_t>(expert)])];
          if (named < 0) named = next++;
        }
      }
      for (int expert = 0; expert < rule_.num_experts; ++expert) {
        const int cluster =
            name[static_cast<std::size_t>(cluster_of[layer][static_cast<std::size_t>(expert)])];
        start[static_cast<std::size_t>(x(layer, cluster, expert))] = 1;
      }
    }
    return start;
  }
  void add_layer(std::span<const std::int64_t> loads, double deviation_floor) {
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
      program_.add_row(
          {static_cast<double>(rule_.in_layer.least[c]), static_cast<double>(rule_.in_layer.most[c])}, row);
    }
    add_deviations(loads, layer, deviation_floor);
  }

  void add_deviations(std::span<const std::int64_t> loads, std::size_t layer, double deviation_floor) {
    const double total =
        static_cast<double>(std::accumulate(loads.begin(), loads.end(), std::int64_t{0})) / unit_;
    std::vector<Term> all;
    for (int cluster = 0; cluster < rule_.num_ranks; ++cluster) {
      const int d = program_.add_column({0, infinity}, 1);
      all.push_back({d});
      std::vector<Term> row;
      for (int expert = 0; expert < rule_.num_experts; ++expert)
        row.push_back(
            {x(layer, cluster, expert),
             rule_.num_ranks * static_cast<double>(loads[static_cast<std::size_t>(expert)]) / unit_});
      row.push_back({d, -1});
      program_.add_row({-infinity, total}, row);  // P T - d <= total
      row.back().coefficient = 1;
      program_.add_row({total, infinity}, row);  // P T + d >= total
    }
    program_.add_row({deviation_floor / unit_, infinity}, all);
  }

  // The i-th expert of the order may be in cluster c only if an earlier one is in cluster c-1.
  void break_symmetry(std::size_t layer) {
    if (rule_.in_layer.least.front() == 0) return;  // the first expert of an empty cluster is undefined
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

  void limit_totals() {
    for (int cluster = 0; cluster < rule_.num_ranks; ++cluster) {
      std::vector<Term> row;
      for (std::size_t layer = 0; layer < first_x_.size(); ++layer)
        for (int expert = 0; expert < rule_.num_experts; ++expert) row.push_back({x(layer, cluster, expert)});
      const auto c = static_cast<std::size_t>(cluster);
      program_.add_row(
          {static_cast<double>(rule_.in_all.least[c]), static_cast<double>(rule_.in_all.most[c])}, row);
    }
  }

  int x(std::size_t layer, int cluster, int expert) const {
    return first_x_[layer] + cluster * rule_.num_experts + expert;
  }

  Program program_;
  const SizeRule& rule_;
  double unit_ = 1;
  double floor_ = 0;
  bool has_total_constraints_ = false;
  std::vector<int> first_x_;             // [layers] column of x(layer, 0, 0)
  std::vector<std::vector<int>> order_;  // [layers][E] experts, the heaviest first
};

}  // namespace evenkeel::internal
