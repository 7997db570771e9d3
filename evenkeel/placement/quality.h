// How good a placement is on a profile: balance in three measures, and the traffic that crosses each level of
// the topology.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/problem.h"
#include "evenkeel/plan/dispatch.h"
#include "evenkeel/routing/imbalance.h"

namespace evenkeel {

// Traffic counts transitions (layer_to_layer) or assignments one way (dispatch_combine), over all layers.
// What goes to an expert is split evenly over its copies, whatever the dispatch rule.
struct PlacementQuality {
  std::vector<double> max_over_mean;  // [L] of the ranks' loads, divided by speed where ranks differ
  double max_over_mean_mean = 1;      // mean over layers
  double max_over_mean_worst = 1;
  double mean_over_max_mean = 1;
  double relative_excess_mean = 0;
  double crossing = 0;          // all that leaves its rank
  double crossing_within = 0;   // the part of crossing between ranks of a node
  double crossing_across = 0;   // the part of crossing between nodes
  double total = 0;             // including what stays on its rank
  double worst_pair = 0;        // traffic of each layer's largest ordered pair of ranks, summed over layers
  std::vector<double> traffic;  // [P, P] over all layers, row by sender
  // False for layer_to_layer with a profile without transitions: all traffic figures are then 0, and
  // `traffic` is empty.
  bool traffic_known = true;
};

// All functions below throw InvalidArgument if the placement's layers, experts or ranks differ from the
// problem's.
PlacementQuality placement_quality(const PlacementProblem& problem, const Placement& placement);
// As above for any recording, with layer-to-layer traffic; `shares` must be those of the placement.
PlacementQuality placement_quality(const RoutingProfile& recording, const Topology& topology,
                                   const Placement& placement, const CopyShares& shares);
PlacementQuality placement_quality(const RoutingProfile& recording, const Topology& topology,
                                   const Placement& placement, Dispatch dispatch = Dispatch::even);

// [P] loads of one layer: each rank computes its copies' part of the assignments.
std::vector<double> rank_loads(const RoutingProfile& profile, const Placement& placement,
                               const CopyShares& shares, LayerId layer);
// Maximum over mean of the ranks' loads, divided by speed where ranks differ; 1 if there is no load.
double max_over_mean(std::span<const double> rank_loads, const Topology& topology);

// Eq. 8 of a placement: traffic / (bandwidth in GB/s), summed over layers. Each layer counts its most
// expensive ordered pair of ranks or all pairs, as the problem's PairObjective says. dispatch_combine counts
// only the way out.
double pair_objective(const PlacementProblem& problem, const Placement& placement);
// Eq. 1 of a placement: the sum over layers and ranks of |load - mean|.
double balance_objective(const PlacementProblem& problem, const Placement& placement);
// Predicted milliseconds, summed over layers: compute of the slowest rank (assignment_us x load / speed) plus
// traffic of the slowest ordered pair of ranks (latency + assignment_bytes x traffic / bandwidth). An
// exchange waits for a message from every pair, even an empty one, so the latency always counts.
// layer_to_layer has one exchange between each layer and the next; dispatch_combine has two in each layer,
// out and back. The problem's PairObjective has no effect.
double joint_objective_ms(const PlacementProblem& problem, const Placement& placement);

}  // namespace evenkeel
