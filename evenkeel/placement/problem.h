// The problem that a placement solver is given, shared by the fast and the exact solvers.
//
// The paper (MoETuner, arXiv 2502.06643) solves two integer programs, one after the other. The first splits
// the experts of every layer into P clusters of nearly equal load (Eq. 1-7, clusters/clusters.h); the second
// gives every cluster a rank, so that little is sent over slow links (Eq. 8-15, ranks/ranks.h). joint/joint.h
// does both at once in predicted milliseconds. docs/placement.md#readings-chosen says how we read the paper.
//
// Fast        No integer-program solver; a lower bound comes with every answer.
// Exact       HiGHS, on linear programs written down term by term (internal/program/), or our own method
//             where that proves the optimum sooner.
//   Cost      exponential at worst; one thread. When time runs out, the best answer so far is returned.
//   Start     an answer to begin from, such as the fast solver's, or empty. A start that breaks the requested
//             sizes or capacities is not used; a start of another shape than the profile's throws
//             InvalidArgument. The start's bound is taken as proven, so the returned bound is never lower.
//   Guarantee never worse than the start. The objective is recomputed from the answer itself. No placement is
//             below the bound (within 1e-6 of it, the solver's tolerance). proven_optimal is true if the
//             objective and the bound meet.
//   Limits    a program of more than 300,000 variables is not tried: the start is returned, and
//             `program_tried` is false. Without a start it throws Unsupported. Variables a layer: E P^2 for
//             the joint program, P^3 for ranks with unlike links, E P for free sizes that are chosen
//             together.
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
// that of its expert in l+1. `dispatch_combine`: in each layer from the token's own rank to its experts'
// ranks and back.
enum class TrafficModel { layer_to_layer, dispatch_combine };

// The part of the traffic that counts in each layer: its most expensive ordered pair of ranks (the paper's
// text), or the sum over all pairs (the letter of Eq. 8). Traffic that stays on a rank is free.
enum class PairObjective { worst_pair, total };

// How many assignments of each layer each rank sends: counts [L, P, E]. Empty under layer_to_layer.
struct SourceCounts {
  int num_layers = 0;
  int num_ranks = 0;
  int num_experts = 0;
  std::vector<double> counts = {};
  bool estimated = false;  // spread evenly over ranks, because there is no trace

  bool empty() const { return counts.empty(); }
  double at(LayerId layer, RankId source, ExpertId expert) const {
    return counts[(layer.offset() * static_cast<std::size_t>(num_ranks) + source.offset()) *
                      static_cast<std::size_t>(num_experts) +
                  expert.offset()];
  }
};

// Milliseconds of compute and of traffic, for the joint objective.
struct PlacementCost {
  // place() refuses larger values. They are far above any model, and keep every sum of costs from
  // overflowing.
  static constexpr double most_assignment_us = 1e9;
  static constexpr double most_assignment_bytes = 1e12;

  double assignment_us = 0.1;      // one assignment on a rank of speed 1
  double assignment_bytes = 8192;  // sent with one assignment, one way
};

// Time to send one assignment over a link, without latency.
inline double sent_ms(const PlacementCost& cost, const Link& link) {
  return 1e3 * wire_seconds(link, cost.assignment_bytes);
}
// Time to compute one assignment on a rank.
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
  Dispatch dispatch = Dispatch::even;  // the rule by which copies are judged
};

// When a solver must stop, and its progress callback.
struct SolveLimits {
  double time_limit_s = 60;
  double relative_gap = 0;    // stop when (objective - bound) / objective is at most this; below 1
  std::stop_token stop = {};  // asked to stop: return the best so far
  // May be called often. Objective and bound are those of the stage being solved.
  std::function<void(double objective, double bound, double seconds)> progress = {};
};

// Whether this build has the integer-program solver; without it the functions named _exact throw Unsupported.
bool has_exact_solver();

// One home for each expert: rank_of_expert is [L][E].
Placement placement_of(const std::vector<std::vector<int>>& rank_of_expert, int num_ranks);

}  // namespace evenkeel
