// The problem that a placement solver is given, shared by the fast and the exact solvers.
//
// The paper (MoETuner, arXiv 2502.06643) solves two integer programs, one after the other. The first splits
// the experts of every layer into P clusters of nearly equal load (Eq. 1-7); the second gives every cluster a
// rank, so that little is sent over slow links (Eq. 8-15). `Clustering` is the answer to the first,
// `RankAssignment` to the second; docs/placement.md#readings-chosen fixes the readings.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/routing/profile.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

// How many experts a cluster of one layer has. `equal`: E/P, rounded up or down where P does not divide E,
// which is what servers load. `free`: at least one (Eq. 7), and the same total on each rank over all layers
// (Eq. 13).
enum class ClusterSizes { equal, free };

// The traffic of a placement. `layer_to_layer` (the paper): from the rank of a token's expert in layer l to
// that of its expert in l+1. `dispatch_combine`: in each layer from the rank where the token lives to its
// experts' ranks and back.
enum class TrafficModel { layer_to_layer, dispatch_combine };

// The part of the traffic that counts in each layer: its most expensive ordered pair of ranks (the paper's
// text), or the sum over all pairs (the letter of Eq. 8). Traffic that stays on a rank is free.
enum class PairObjective { worst_pair, total };

// How assignments of each layer come from ranks: counts [L, P, E]. Empty under layer_to_layer.
struct SourceCounts {
  int num_layers = 0;
  int num_ranks = 0;
  int num_experts = 0;
  std::vector<double> counts = {};
  bool estimated = false;  // spread evenly over ranks, for want of a trace

  bool empty() const { return counts.empty(); }
  double at(LayerId layer, RankId source, ExpertId expert) const {
    return counts[(layer.offset() * static_cast<std::size_t>(num_ranks) + source.offset()) *
                      static_cast<std::size_t>(num_experts) +
                  expert.offset()];
  }
};

// Milliseconds of compute and of traffic, for the joint objective.
struct PlacementCost {
  // Beyond these place() refuses: far above any model, and no sum of costs overflows.
  static constexpr double most_assignment_us = 1e9;
  static constexpr double most_assignment_bytes = 1e12;

  double assignment_us = 0.1;      // one assignment on a rank of speed 1
  double assignment_bytes = 8192;  // sent with one assignment, one way
};

struct PlacementProblem {
  const RoutingProfile& profile;
  const Topology& topology;
  ClusterSizes sizes = ClusterSizes::equal;
  TrafficModel traffic = TrafficModel::layer_to_layer;
  PairObjective pairs = PairObjective::worst_pair;
  const SourceCounts& sources;  // empty under layer_to_layer
  PlacementCost cost = {};      // for the joint objective
};

// The experts of each layer in clusters 0..P-1.
struct Clustering {
  std::vector<std::vector<int>> cluster_of;  // [L][E]
  double objective = 0;                      // Eq. 1: over layers and clusters, |load - mean|
  double bound = 0;                          // nobody goes below, for these sizes
  bool proven_optimal = false;
  // Free sizes where the best of each layer alone would leave ranks unequal totals (Eq. 13): all layers were
  // solved as one.
  bool sizes_chosen_together = false;
  // Free sizes: the bound is of all layers together, with Eq. 13; else of each layer by itself, below which
  // all together do not go either.
  bool bound_has_totals = false;
  // Exact: false where all layers together have too many variables.
  bool program_tried = true;
  bool layers_tried = true;  // exact: false where a layer alone has too many
};

// The rank of each cluster, for one given Clustering.
struct RankAssignment {
  std::vector<std::vector<int>> rank_of;  // [L][cluster]
  double objective = 0;                   // Eq. 8 (PairObjective), traffic / bandwidth
  double bound = 0;                       // nobody goes below with these clusters
  bool proven_optimal = false;
  bool program_tried = true;  // exact: false where it has too many variables
};

// Homes chosen without the two stages, by predicted milliseconds.
struct JointSolution {
  std::vector<std::vector<int>> rank_of_expert;  // [L][E]
  double objective_ms = 0;
  double bound_ms = 0;
  bool proven_optimal = false;
  bool program_tried = true;  // exact: false where it has too many variables
};

// How long and how far a solver may go, and whom it tells.
struct SolveLimits {
  double time_limit_s = 60;
  double relative_gap = 0;    // stop when (objective - bound) / objective is at most this
  std::stop_token stop = {};  // asked to stop: return the best so far
  // May be called often. Objective and bound are of the stage that is being solved.
  std::function<void(double objective, double bound, double seconds)> progress = {};
};

// The homes that a solution says.
Placement placement_of(const Clustering& clustering, const RankAssignment& ranks, int num_ranks);
Placement placement_of(const JointSolution& solution, int num_ranks);

}  // namespace evenkeel
