// The problem that a placement solver is given, shared by the fast and the exact solvers.
//
// The paper (MoETuner, arXiv 2502.06643) solves two integer programs, one after the other. The first splits
// the experts of every layer into P clusters of nearly equal load (Eq. 1-7, clusters/clusters.h); the second
// gives every cluster a rank, so that little is sent over slow links (Eq. 8-15, ranks/ranks.h). joint/joint.h
// does both at once in predicted milliseconds. docs/placement.md#readings-chosen fixes the readings.
//
// Fast        No integer-program solver; a lower bound comes with every answer.
// Exact       HiGHS, on linear programs written down term by term (internal/program/), or a method of our own
//             where that ends with a proof sooner.
//   Cost      exponential at worst; one thread. What does not end in time comes back as it is.
//   Start     an answer to begin from, such as the fast solver's, or empty. One that breaks the sizes or
//             capacities asked for is not used; one of another shape than the profile is an InvalidArgument.
//             Its bound is taken as proven, and what comes back has no lower one.
//   Guarantee never worse than the start; the objective is recomputed from the answer itself; nobody goes
//             below the bound (within 1e-6 of it, the solver's tolerance); proven_optimal where the two meet.
//   Limits    a program of more than 300,000 variables is not tried: the start comes back, and
//             `program_tried` says so; without a start, Unsupported. E P^2 variables a layer for the joint
//             one, P^3 for ranks of unlike links, E P for free sizes that are chosen together.
//   Throws    Infeasible where capacities and Eq. 13 leave no answer, or none was found in time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/cost/links.h"
#include "evenkeel/plan/dispatch.h"
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

// One assignment over a link, without latency.
inline double sent_ms(const PlacementCost& cost, const Link& link) {
  return 1e3 * wire_seconds(link, cost.assignment_bytes);
}
// One assignment on a rank.
inline double computed_ms(const PlacementCost& cost, const Topology& topology, RankId rank) {
  return cost.assignment_us * 1e-3 / topology.speed(rank);
}

struct PlacementProblem {
  const RoutingProfile& profile;
  const Topology& topology;
  ClusterSizes sizes = ClusterSizes::equal;
  TrafficModel traffic = TrafficModel::layer_to_layer;
  PairObjective pairs = PairObjective::worst_pair;
  const SourceCounts& sources;         // empty under layer_to_layer
  PlacementCost cost = {};             // for the joint objective
  Dispatch dispatch = Dispatch::even;  // by which copies are judged
};

// How long and how far a solver may go, and whom it tells.
struct SolveLimits {
  double time_limit_s = 60;
  double relative_gap = 0;    // stop when (objective - bound) / objective is at most this; below 1
  std::stop_token stop = {};  // asked to stop: return the best so far
  // May be called often. Objective and bound are of the stage that is being solved.
  std::function<void(double objective, double bound, double seconds)> progress = {};
};

// Whether this build has the integer-program solver; without it the functions named _exact throw Unsupported.
bool has_exact_solver();

// One home for each expert: rank_of_expert is [L][E].
Placement placement_of(const std::vector<std::vector<int>>& rank_of_expert, int num_ranks);

}  // namespace evenkeel
