// Program 1 of MoETuner (Eq. 1-7): splits the experts of each layer into P clusters of nearly equal load.
//
// Fast        Takes milliseconds. In each layer experts are assigned largest first, then swapped; a layer of
//             few experts is searched completely. With free sizes, a last step meets the totals of Eq. 13.
// Exact       A dynamic program over subsets for up to about 18 experts, else an integer program (problem.h).
//             Time that easy layers leave goes to hard ones. With free sizes the layers are first solved one
//             by one. They are solved together only if the resulting sizes cannot give every rank the same
//             total (Eq. 13); `sizes_chosen_together` is then true. In that case cluster c of every layer
//             goes to rank c.
#pragma once

#include <vector>

#include "evenkeel/placement/problem.h"

namespace evenkeel {

// The experts of each layer in clusters 0..P-1.
struct Clustering {
  std::vector<std::vector<int>> cluster_of;  // [L][E]
  double objective = 0;                      // Eq. 1: sum over layers and clusters of |load - mean|
  double bound = 0;                          // a lower bound on Eq. 1 for these sizes
  bool proven_optimal = false;               // the objective is at the bound, whatever gap was requested
  bool ended_by_time = false;                // its share of the time ran out; more time might help
  // Free sizes: the best sizes of each layer alone would give ranks unequal totals (Eq. 13), so all layers
  // were solved as one.
  bool sizes_chosen_together = false;
  // Free sizes. True: the bound holds for all layers together, with Eq. 13. False: it is the sum of the
  // layers' own bounds, which is also valid for all together.
  bool bound_has_totals = false;
  // Exact: false if the program of all layers has too many variables.
  bool program_tried = true;
  bool layers_tried = true;  // exact: false if the program of one layer has too many variables
};

// The bound holds for the same problem with the same sizes.
Clustering cluster_fast(const PlacementProblem& problem, const SolveLimits& limits = {});
Clustering cluster_exact(const PlacementProblem& problem, const Clustering& start, const SolveLimits& limits);

}  // namespace evenkeel
