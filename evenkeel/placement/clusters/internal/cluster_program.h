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
// Clusters of one layer have no names. Unless layers are tied, cluster c may be taken to begin after
// cluster c-1 in the order of experts, which cuts P! copies of every answer down to one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/program/program.h"
#include "evenkeel/placement/internal/program/sizes.h"

namespace evenkeel::exact {

class ClusterProgram {
 public:
  // loads[l] is [E]. `tied`: the totals of the rule (Eq. 13) hold over these layers, cluster c lying on rank
  // c. deviation_floors[l]: nobody's deviation in that layer is below it.
  ClusterProgram(const std::vector<std::span<const std::int64_t>>& loads, const SizeRule& rule, bool tied,
                 const std::vector<double>& deviation_floors);

  const Program& program() const { return program_; }
  // The factor that makes the objective the sum of |P load - total|.
  double unit() const { return unit_; }
  // The names of clusters may change, but experts of one cluster stay together.
  std::vector<double> start_of(const std::vector<std::vector<int>>& cluster_of) const;
  std::vector<std::vector<int>> clusters_of(const std::vector<double>& values) const;

 private:
  void add_layer(std::span<const std::int64_t> loads, double deviation_floor);
  void add_deviations(std::span<const std::int64_t> loads, std::size_t layer, double deviation_floor);
  void break_symmetry(std::size_t layer);
  void tie_layers();
  int x(std::size_t layer, int cluster, int expert) const {
    return first_x_[layer] + cluster * rule_.num_experts + expert;
  }

  Program program_;
  const SizeRule& rule_;
  double unit_ = 1;
  bool tied_ = false;
  std::vector<int> first_x_;             // [layers] column of x(layer, 0, 0)
  std::vector<std::vector<int>> order_;  // [layers][E] experts, the heaviest first
};

}  // namespace evenkeel::exact
