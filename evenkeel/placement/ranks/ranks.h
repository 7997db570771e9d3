// Program 2 of MoETuner (Eq. 8-15): a rank for every cluster, so that little is sent over slow links.
//
// Fast        Milliseconds. Exact where the program falls apart into assignment problems, a dynamic program
//             for few ranks, else local search from a start that is best layer by layer.
// Exact       Each exchange alone where links are alike, permutations for up to 6 ranks, else one integer
//             program (problem.h).
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
  double bound = 0;                       // nobody goes below with these clusters
  bool proven_optimal = false;            // at the bound, whatever gap was asked for
  bool program_tried = true;              // exact: false where it has too many variables
};

// They throw InvalidArgument: where traffic from layer to layer is asked of a profile without transitions,
// and for a clustering that is not of the problem's layers, experts and ranks. The bound holds for these
// clusters.
RankAssignment assign_ranks_fast(const PlacementProblem& problem, const Clustering& clustering,
                                 const SolveLimits& limits = {});
// Where nothing is known of traffic: as if every rank sent an equal part of each expert's load. Without time
// for that, ranks that the rule allows, whose objective is infinite.
RankAssignment assign_ranks_by_load(const PlacementProblem& problem, const Clustering& clustering,
                                    const SolveLimits& limits);
RankAssignment assign_ranks_exact(const PlacementProblem& problem, const Clustering& clustering,
                                  const RankAssignment& start, const SolveLimits& limits);

// The homes that the two programs say: [L][E], and as a placement.
std::vector<std::vector<int>> rank_of_experts(const Clustering& clustering, const RankAssignment& ranks);
Placement placement_of(const Clustering& clustering, const RankAssignment& ranks, int num_ranks);

// Ranks renamed layer by layer, so that less is sent: what a rank holds, copies and all, goes to another rank
// as a whole. Where groups stay in a node, nodes are renamed first and ranks within each node then. Balance
// is untouched; Eq. 8 is never worse than before; node mates stay together where asked for. slots_per_rank
// [P]: what each rank holds in every layer, which it keeps. Nothing is told to limits.progress.
Placement relabel_ranks(const PlacementProblem& problem, const Placement& placement,
                        std::span<const std::int32_t> slots_per_rank, bool nodes_stay_together,
                        const SolveLimits& limits);

}  // namespace evenkeel
