// Program 1 of MoETuner (Eq. 1-7): the experts of each layer in P clusters of nearly equal load.
//
// Fast        Milliseconds. Largest first and exchanges in each layer, a search of all partitions of few
//             experts; then the totals of Eq. 13 where sizes are free.
// Exact       Subsets for up to some 18 experts, else an integer program (problem.h). What easy layers leave
//             of the time goes to hard ones. With free sizes the layers are solved one by one, and together
//             only if the sizes that come out cannot give every rank the same total (Eq. 13);
//             `sizes_chosen_together` says so. Cluster c of every layer then goes to rank c.
#pragma once

#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel {

// The experts of each layer in clusters 0..P-1.
struct Clustering {
  std::vector<std::vector<int>> cluster_of;  // [L][E]
  double objective = 0;                      // Eq. 1: over layers and clusters, |load - mean|
  double bound = 0;                          // nobody goes below, for these sizes
  bool proven_optimal = false;               // at the bound, whatever gap was asked for
  bool ended_by_time = false;                // its share of the time is over, and more of it might help
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

// The bound is of the same problem, for the same sizes.
Clustering cluster_fast(const PlacementProblem& problem, const SolveLimits& limits = {});
Clustering cluster_exact(const PlacementProblem& problem, const Clustering& start, const SolveLimits& limits);

}  // namespace evenkeel
