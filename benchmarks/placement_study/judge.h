// The quality of a placement for routing that it was not made from.
#pragma once

#include <vector>

#include "benchmarks/placement_study/recording.h"
#include "evenkeel/placement/problem.h"

namespace evenkeel::study {

// Means over layers, and over parts if several are judged.
struct Verdict {
  double max_over_mean = 0;  // max/mean of the ranks' loads
  double worst_layer = 0;    // largest max/mean of a layer
  double crossing = 0;       // share of the traffic that leaves its rank
  double across_nodes = 0;   // share of the traffic that leaves its node
  double worst_pair = 0;     // share of the traffic on each layer's largest ordered pair of ranks
  double predicted_ms = 0;   // time of a layer's slowest rank and slowest pair
  double spilled = 0;        // share of the assignments that `level` computes away from home
  double transfers = 0;      // expert weights that `level` sends in a layer
};

struct Setting {
  const Topology& topology;
  TrafficModel traffic = TrafficModel::layer_to_layer;
  PlacementCost cost = {};
};

Verdict judge(const std::vector<Recording>& parts, const Placement& placement, const Setting& setting);

}  // namespace evenkeel::study
