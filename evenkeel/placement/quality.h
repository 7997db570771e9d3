// How good a placement is on a profile: balance three ways, and what crosses each level of the topology.
#pragma once

#include <span>
#include <vector>

#include "evenkeel/placement/problem.h"
#include "evenkeel/plan/dispatch.h"
#include "evenkeel/routing/imbalance.h"

namespace evenkeel {

// Traffic in transitions (layer_to_layer) or assignments one way (dispatch_combine), over all layers; what
// goes to an expert is split evenly over its copies there, whatever the dispatch.
struct PlacementQuality {
  std::vector<double> max_over_mean;  // [L] of the ranks' loads, by speed where ranks differ
  double max_over_mean_mean = 1;      // over layers
  double max_over_mean_worst = 1;
  double mean_over_max_mean = 1;
  double relative_excess_mean = 0;
  double crossing = 0;          // all that leaves its rank
  double crossing_within = 0;   // of it, between ranks of a node
  double crossing_across = 0;   // of it, between nodes
  double total = 0;             // what stays included
  double worst_pair = 0;        // over layers, the sum of each layer's largest ordered pair of ranks
  std::vector<double> traffic;  // [P, P] over all layers, row by sender
  // False where layer_to_layer is asked of a profile without transitions: all figures of traffic are then 0,
  // and `traffic` is empty.
  bool traffic_known = true;
};

// All below throw InvalidArgument for a placement of other layers, experts or ranks than the problem's.
PlacementQuality placement_quality(const PlacementProblem& problem, const Placement& placement);
// As above for any recording, with the traffic from layer to layer; `shares` are those of the placement.
PlacementQuality placement_quality(const RoutingProfile& recording, const Topology& topology,
                                   const Placement& placement, const CopyShares& shares);
PlacementQuality placement_quality(const RoutingProfile& recording, const Topology& topology,
                                   const Placement& placement, Dispatch dispatch = Dispatch::even);

// Each rank computes the part of a layer's assignments that its copies take.
std::vector<double> rank_loads(const RoutingProfile& profile, const Placement& placement,
                               const CopyShares& shares, LayerId layer);
// Of the ranks' loads, by speed where ranks differ; 1 where there is no load.
double max_over_mean(std::span<const double> rank_loads, const Topology& topology);

// Eq. 8 of a placement: over layers, traffic / bandwidth in GB/s of the most expensive ordered pair of ranks,
// or of all pairs together, as the problem's PairObjective says. Under dispatch_combine the way out counts.
double pair_objective(const PlacementProblem& problem, const Placement& placement);
// Eq. 1 of a placement: over layers and ranks, |load - mean|.
double balance_objective(const PlacementProblem& problem, const Placement& placement);
// Predicted milliseconds, over all layers: the compute of the slowest rank, assignment_us x load / speed,
// plus the traffic of the slowest ordered pair of ranks, latency + assignment_bytes x traffic / bandwidth. An
// exchange waits for a message of every pair, empty ones too, so the latency always counts. Under
// layer_to_layer there is an exchange between each layer and the next; under dispatch_combine two in each
// layer, out and back. The problem's PairObjective plays no part.
double joint_objective_ms(const PlacementProblem& problem, const Placement& placement);

}  // namespace evenkeel
