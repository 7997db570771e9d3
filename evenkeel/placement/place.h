// place(): from a routing profile to the home of every expert, by the solver that is asked for.
//
//   RoutingProfile profile = profile_trace(*open_trace("trace.safetensors"));
//   PlaceResult placed = place(profile, Topology::uniform(/*num_nodes=*/2, /*ranks_per_node=*/4));
//
// Without copies, two_stage first splits the experts of each layer into clusters of nearly equal load and
// then gives every cluster a rank, so that little is sent over slow links; joint weighs both in milliseconds.
// With redundant experts, balance alone decides who gets copies and which rank holds what; ranks are then
// renamed in each layer to send less, each keeping its number of slots. joint goes on from there: copies and
// homes change while that lowers the milliseconds. `from` starts at a placement and moves few experts for
// balance alone.
//
// Limits steer all of them, and traffic and sources count in their figures before and after. The other
// options steer:
//
//   two_stage               solver, sizes, traffic, pairs, sources, capacities
//   joint                   solver, sizes, traffic, pairs (of the two stages that it starts from), sources,
//                           capacities, cost, speeds of ranks; with redundant experts no solver and no sizes
//   redundant or grouped    traffic, pairs, sources (names of ranks alone), whole_groups (beside num_groups);
//                           capacities that do not hold the slots are refused, and more copies than ranks can
//                           hold of different experts
//   from                    redundant_experts (free slots to fill), num_groups (experts stay on their nodes),
//                           whole_groups, capacities
//   several recordings      as redundant or grouped, or as from
//
// The dispatch steers redundant experts; with `from` it is only judged by. joint refuses one that does not
// use copies evenly.
//
// Several recordings are all to be level, the worst first (robust/robust.h), or are added up. Solver exact
// and free sizes are refused beside copies, groups, from and several recordings that are not added up; joint
// beside the last three; all pairs beside from, and where nothing is known of traffic.
// Any other option that a line does not name has no effect there.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/problem.h"
#include "evenkeel/placement/quality.h"

namespace evenkeel {

struct PlaceOptions {
  enum class Solver { fast, exact };
  enum class Objective { two_stage, joint };
  enum class Across { worst, sum };

  Solver solver = Solver::fast;
  Objective objective = Objective::two_stage;
  ClusterSizes sizes = ClusterSizes::equal;
  TrafficModel traffic = TrafficModel::layer_to_layer;
  PairObjective pairs = PairObjective::worst_pair;
  PlacementCost cost = {};
  int redundant_experts = 0;  // copies beyond E, in each layer
  int num_groups = 1;         // expert groups, each of which stays in one node
  // The groups stay whole in contiguous_order() instead, in whatever nodes (whole_groups.h).
  bool whole_groups = false;
  // Incremental: the best placement that gives at most max_moves experts (over all layers) another home,
  // and copies are homes; with 0 that is `from` itself.
  std::optional<Placement> from = {};
  int max_moves = 0;
  // The time is that of the whole call: every stage looks at it, and what it leaves no time for stays as it
  // is, largest first or in order.
  SolveLimits limits = {};
  SourceCounts sources = {};  // dispatch_combine; empty: tokens spread evenly, and the result says so
  // Of several recordings: every one counts, the worst first; or what they add up to.
  Across across = Across::worst;
  // The server's rule for copies, by which all figures of balance are, and by which copies are placed
  // (as_served.h).
  Dispatch dispatch = Dispatch::even;
};

// One of several recordings, before and after.
struct RecordingQuality {
  PlacementQuality before;
  PlacementQuality after;
};

struct PlaceResult {
  Placement placement;
  std::map<std::string, double> objective = {};  // by name: "balance", "traffic", "joint_ms", "max_over_mean"
  std::map<std::string, double> bound = {};      // the same names
  std::map<std::string, std::string> bound_of = {};  // of what problem each bound is, in words
  // Every objective is at its bound, or within the gap that was asked for; notes say which of them.
  bool proven_optimal = false;
  bool ended_by_time = false;  // the limit, or a stage's share of it, ended the search; notes say so
  // Whose answer and bounds these are: fast also where exact was asked for and could not be tried (notes say
  // why).
  PlaceOptions::Solver solver = PlaceOptions::Solver::fast;
  double solve_ms = 0;
  PlacementQuality before = {};  // contiguous homes, or `from`
  PlacementQuality after = {};
  std::vector<RecordingQuality> per_recording = {};  // of several, in order
  // From a placement, with fewer copies than were asked for: how many there are, and the moves for all. Among
  // the notes too.
  std::string missing_copies = {};
  std::vector<std::string> notes = {};  // what a reader of the figures must know, a sentence each
};

// Throws InvalidArgument (options that contradict each other or the profile), Infeasible (capacity for fewer
// experts than there are), Unsupported (exact without its solver).
PlaceResult place(const RoutingProfile& profile, const Topology& topology, const PlaceOptions& options = {});
// Of several recordings of one model. Transitions count where all have them; before and after are of the sum.
PlaceResult place(std::span<const RoutingProfile> recordings, const Topology& topology,
                  const PlaceOptions& options = {});

}  // namespace evenkeel
