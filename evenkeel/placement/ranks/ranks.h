// Program 2 of MoETuner (Eq. 8-15): a rank for every cluster, so that little is sent over slow links.
//
// Fast        Takes milliseconds. Exact if the program splits into assignment problems. For few ranks a
//             dynamic program; otherwise local search from a start that is best layer by layer.
// Exact       Solves each exchange alone if links are alike. For up to 6 ranks a search of permutations;
//             otherwise one integer program (problem.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/clusters/clusters.h"

namespace evenkeel {

// The rank of each cluster, for one given Clustering.
struct RankAssignment {
  std::vector<std::vector<int>> rank_of;  // [L][cluster]
  double objective = 0;                   // Eq. 8 (PairObjective), traffic / bandwidth
  double bound = 0;                       // a lower bound on the objective with these clusters
  bool proven_optimal = false;            // the objective is at the bound, whatever gap was requested
  bool program_tried = true;              // exact: false where it has too many variables
};

// All throw InvalidArgument for layer-to-layer traffic if the profile has no transitions, and for a
// clustering whose layers, experts or ranks differ from the problem's. The bound holds for these clusters.
RankAssignment assign_ranks_fast(const PlacementProblem& problem, const Clustering& clustering,
                                 const SolveLimits& limits = {});
// For unknown traffic: assumes that every rank sends an equal part of each expert's load. If time runs out,
// returns ranks that the rule allows, with an infinite objective.
RankAssignment assign_ranks_by_load(const PlacementProblem& problem, const Clustering& clustering,
                                    const SolveLimits& limits);
RankAssignment assign_ranks_exact(const PlacementProblem& problem, const Clustering& clustering,
                                  const RankAssignment& start, const SolveLimits& limits);

// The homes that the two programs give: [L][E], and as a placement.
std::vector<std::vector<int>> rank_of_experts(const Clustering& clustering, const RankAssignment& ranks);
Placement placement_of(const Clustering& clustering, const RankAssignment& ranks, int num_ranks);

// Renames ranks layer by layer to send less: all that a rank holds, copies included, goes to another rank as
// a whole. With nodes_stay_together, nodes are renamed first, then ranks within each node; ranks of a node
// stay together. Balance does not change, and Eq. 8 does not increase. slots_per_rank [P]: the slots of each
// rank in every layer; each rank keeps its number of slots. Does not call limits.progress.
Placement relabel_ranks(const PlacementProblem& problem, const Placement& placement,
                        std::span<const std::int32_t> slots_per_rank, bool nodes_stay_together,
                        const SolveLimits& limits);

}  // namespace evenkeel
