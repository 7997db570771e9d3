// place(): from a routing profile to the home of every expert, by the solver that the options choose.
//
//   RoutingProfile profile = profile_trace(*open_trace("trace.safetensors"));
//   PlaceResult placed = place(profile, Topology::uniform(/*num_nodes=*/2, /*ranks_per_node=*/4));
//
// Without copies, two_stage first splits the experts of each layer into clusters of nearly equal load. Then
// it gives every cluster a rank, so that little is sent over slow links. joint weighs both in milliseconds.
// With redundant experts, balance alone decides which experts get copies and which rank holds them. Ranks are
// then renamed in each layer to send less; each rank keeps its number of slots. joint continues from there:
// it changes copies and homes while that lowers the milliseconds.
// `from` starts at a given placement and moves a few experts, for balance alone.
//
// limits apply to all solvers. traffic and sources always enter the figures before and after. The options
// that each solver uses:
//
//   two_stage               solver, sizes, traffic, pairs, sources, capacities
//   joint                   solver, sizes, traffic, pairs (in the two stages that it starts from), sources,
//                           capacities, cost, speeds of ranks; with redundant experts neither solver nor
//                           sizes
//   redundant or grouped    traffic, pairs, sources (only to rename ranks), whole_groups (with num_groups).
//                           Refused: capacities below the slots, and so many copies that a rank would
//                           hold an expert twice
//   from                    redundant_experts (free slots to fill), num_groups (experts stay on their nodes),
//                           whole_groups, capacities
//   several recordings      as redundant or grouped, or as from
//
// The dispatch rule steers redundant experts; with `from` it only judges the result. joint refuses a rule
// that does not use copies evenly.
//
// Several recordings are all made level, the worst first (robust/robust.h), or are added up. Refused
// combinations:
// - solver exact, or free sizes, with copies, groups, from, or several recordings that are not added up
// - joint with groups, from, or several recordings that are not added up
// - pairs total with from, or if nothing is known of traffic
// An option that its line in the table does not name has no effect there.
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
  // Keeps groups whole in contiguous_order() instead, whatever the nodes (whole_groups.h).
  bool whole_groups = false;
  // Incremental: the best placement that gives at most max_moves experts (summed over layers) another home. A
  // new copy counts as a home too. With 0 moves the result is `from` itself.
  std::optional<Placement> from = {};
  int max_moves = 0;
  // The time limit covers the whole call, and every stage respects it. Parts that get no time stay as they
  // are; parts are worked on largest first, or in order.
  SolveLimits limits = {};
  SourceCounts sources = {};  // dispatch_combine; empty: tokens spread evenly, and the result says so
  // For several recordings: each one counts, the worst first; or only their sum counts.
  Across across = Across::worst;
  // The server's rule for copies. All figures of balance use it, and copies are placed by it (as_served.h).
  Dispatch dispatch = Dispatch::even;
};

// One of several recordings, before and after placing.
struct RecordingQuality {
  PlacementQuality before;
  PlacementQuality after;
};

struct PlaceResult {
  Placement placement;
  std::map<std::string, double> objective = {};  // by name: "balance", "traffic", "joint_ms", "max_over_mean"
  std::map<std::string, double> bound = {};      // by the same names
  std::map<std::string, std::string> bound_of = {};  // the problem that each bound holds for, in words
  // Every objective is at its bound or within the requested gap; notes say which.
  bool proven_optimal = false;
  bool ended_by_time = false;  // the limit, or a stage's share of it, ended the search; notes say so
  // The solver that found the answer and bounds: fast also where exact was requested but could not be tried
  // (notes say why).
  PlaceOptions::Solver solver = PlaceOptions::Solver::fast;
  double solve_ms = 0;
  PlacementQuality before = {};  // contiguous homes, or `from`
  PlacementQuality after = {};
  std::vector<RecordingQuality> per_recording = {};  // for several recordings, in order
  // With `from` and fewer copies than requested: how many there are, and the moves that all would take. Also
  // in the notes.
  std::string missing_copies = {};
  std::vector<std::string> notes = {};  // what a reader of the figures must know, one sentence each
};

// Throws InvalidArgument (options that contradict each other or the profile), Infeasible (capacity for fewer
// experts than there are), Unsupported (exact without its solver).
PlaceResult place(const RoutingProfile& profile, const Topology& topology, const PlaceOptions& options = {});
// For several recordings of one model. Transitions count if all recordings have them; `before` and `after`
// are measured on the sum.
PlaceResult place(std::span<const RoutingProfile> recordings, const Topology& topology,
                  const PlaceOptions& options = {});

}  // namespace evenkeel
