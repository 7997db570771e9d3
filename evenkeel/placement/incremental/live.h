// Rebalancing a model while it is served: from the map in use and the loads of the last windows, a map that
// few weights travel for.
//
// Problem     place_incrementally() on maps of physical experts, over windows as recordings. Placed in full:
//             from a map that no Placement can say or that splits a group over nodes; and, where max_moves
//             and least_gain let it, from experts in order, with which servers begin. Few moves would make
//             that level too, but with copies of the wrong experts, so that it is soon uneven again.
// Method      place_incrementally(), which leaves groups on their nodes; where there are several nodes of
//             them, a layer may also be taken whole from replicate_robustly(). In full: replicate_robustly().
// Cost        docs/servers.md#what-is-moved-and-when.
// Guarantee   few moves: those of place_incrementally(). The result depends on the input alone, so that
//             ranks which are given the same decide the same.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/replicas/eplb.h"

namespace evenkeel {

struct LiveProblem {
  int num_windows = 1;
  EplbProblem of_each;  // of all windows: its weight is [W, L, E]
  // [L, num_replicas] the expert of each physical one, now. Empty: there is no map to start from.
  std::span<const std::int64_t> live = {};
  int max_moves = std::numeric_limits<int>::max();  // not kept where it is placed in full
  double least_gain = 0;                            // as IncrementalProblem has it
};

struct LiveResult {
  std::vector<std::int64_t> physical_to_logical;  // [L, num_replicas], rank after rank
  int moves = 0;                                  // pairs (layer, rank, expert) that are new
  // [L] of the window in which it is worst: now (empty where the map in use leaves an expert out or there is
  // none), then, and with whatever moves.
  std::vector<double> max_over_mean_before;
  std::vector<double> max_over_mean;
  std::vector<double> reachable;
  std::string placed_in_full;  // why; empty where the map in use was the start
};

// Throws as rebalance_experts() and place_incrementally() do, and InvalidArgument for a map of another size
// or with an expert outside 0..E-1.
LiveResult rebalance_live(const LiveProblem& problem);

}  // namespace evenkeel
