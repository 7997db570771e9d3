// Moving few experts: from the placement that is live, the best one that needs no more than some number of
// weight transfers.
//
// Problem     minimise the sum over layers of max/mean of the ranks' loads (an expert's load split evenly
//             over its copies; of several recordings the worst), where at most max_moves pairs (layer, expert
//             and rank) are homes that were none before: each is one expert's weights to send. Dropping a
//             copy is free. A rank never holds more than its slots.
// Method      each layer by itself: a path of steps that relieve its heaviest rank, each with its cost and
//             what it leaves. Steps: an exchange of two copies (2 moves), a copy given up for one of another
//             expert (1), a copy into a free slot (1). Beside it the placement that replicate()'s search, or
//             replicate_robustly()'s, finds without regard to moves, its ranks numbered to keep what they
//             can. Then moves go to the layers in the order of benefit per move along the lower hulls of what
//             each layer offers; with least_gain they end where what is left to gain is not worth them.
// Cost        a step of a layer: slots x experts of the heaviest rank, a few microseconds to a few tens.
// Guarantee   never more moves than allowed, never a layer worse than it was. With moves and time enough,
//             where every expert's copies are on one node, a layer is as balanced as that search makes it, or
//             within 1e-4 of even.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/problem.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct IncrementalProblem {
  const Placement& current;
  std::span<const double> loads;  // [L, E], 0 or more, finite; of several recordings [W, L, E]
  int max_moves = 0;
  // Above 1: ranks of a node are consecutive, and copies stay on the nodes where their expert has one now.
  int num_nodes = 1;
  // [L, P] slots of each rank; empty: as many as it has homes in that layer.
  std::vector<std::int32_t> slots_per_rank = {};
  // Only the time limit and the stop are used: layers that are not reached stay as they are.
  SolveLimits limits = {};
  int num_recordings = 1;
  // 0 or more. Nothing moves where max/mean, mean of layers, cannot fall by this much; else moves end where
  // half of it is left to gain.
  double least_gain = 0;
  // Another placement, from which a layer may be taken whole, its nodes and ranks numbered to keep what they
  // can. It may put experts on other nodes. Each of its ranks has as many experts as slots.
  const Placement* alternative = nullptr;
};

struct IncrementalResult {
  Placement placement;
  int moves = 0;
  std::vector<int> moves_of_layer;           // [L]
  std::vector<double> max_over_mean_before;  // [L]
  std::vector<double> max_over_mean;         // [L]
  std::vector<double> reachable;             // [L] max/mean of the best that was found, whatever it moves
};

// Throws InvalidArgument: loads that do not fit, are negative or add up to no finite total, max_moves below
// 0, fewer slots than homes, least_gain below 0 or not finite, an alternative of other sizes.
IncrementalResult place_incrementally(const IncrementalProblem& problem);

}  // namespace evenkeel
