// Incremental placement: from the current placement to the best one within a limit on weight transfers.
//
// Problem     minimise max/mean of the ranks' loads, summed over layers. An expert's load is split evenly
//             over its copies; of several recordings the worst counts. At most max_moves homes may be new: a
//             home is a triple (layer, expert, rank), and each new one means sending one expert's weights.
//             Dropping a copy is free. A rank never holds more than its slots.
// Method      each layer, on its own, offers a path of steps that relieve its heaviest rank, with the moves
//             and the value after each step. A step swaps two copies (2 moves), replaces a copy by one of
//             another expert (1 move), or adds a copy in a free slot (1 move). The layer also offers the
//             placement that the search of replicate() or replicate_robustly() finds regardless of moves,
//             with ranks numbered to keep as many homes as possible. Then moves are given to layers by
//             benefit per move, along the lower hulls of their offers. With least_gain, moves end when the
//             remaining gain is not worth them.
// Cost        a step of a layer looks at slots x experts of the heaviest rank; it takes a few microseconds to
//             a few tens of them.
// Guarantee   never more moves than allowed; no layer gets worse. With enough moves and time, if every
//             expert's copies are on one node, a layer is as balanced as that search makes it, or within 1e-4
//             of even.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/problem.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct IncrementalProblem {
  const Placement& current;
  std::span<const double> loads;  // [L, E], 0 or more, finite; for several recordings [W, L, E]
  int max_moves = 0;
  // If above 1: ranks of a node are consecutive, and copies stay on the nodes where their expert has one now.
  int num_nodes = 1;
  // [L, P] slots of each rank; empty: each rank has as many slots as homes in that layer.
  std::vector<std::int32_t> slots_per_rank = {};
  // Only the time limit and the stop token are used. Layers that are not reached in time stay as they are.
  SolveLimits limits = {};
  int num_recordings = 1;
  // 0 or more. Nothing moves if max/mean, averaged over layers, cannot fall by this much. Otherwise moves end
  // when at most half of least_gain is left to gain.
  double least_gain = 0;
  // Another placement. A layer may be taken whole from it; its nodes and ranks are then renumbered to keep as
  // many homes as possible. It may put experts on other nodes. Each of its ranks must have as many experts as
  // slots.
  const Placement* alternative = nullptr;
};

struct IncrementalResult {
  Placement placement;
  int moves = 0;
  std::vector<int> moves_of_layer;           // [L]
  std::vector<double> max_over_mean_before;  // [L]
  std::vector<double> max_over_mean;         // [L]
  std::vector<double> reachable;             // [L] best max/mean found with any number of moves
};

// Throws InvalidArgument: loads of the wrong size, negative or without a finite total; max_moves below 0;
// fewer slots than homes; least_gain below 0 or not finite; an alternative of other sizes.
IncrementalResult place_incrementally(const IncrementalProblem& problem);

}  // namespace evenkeel
