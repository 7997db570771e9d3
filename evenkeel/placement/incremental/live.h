// Rebalances a model while it is served: from the current map and the loads of the last windows to a map that
// needs few weight transfers.
//
// Problem     place_incrementally() on maps of physical experts, with windows as recordings. The map is
//             placed in full (from scratch) if the current one cannot be a Placement or splits a group over
//             nodes. It is also placed in full if experts are in order, as when servers start, and max_moves
//             and least_gain allow it. Few moves would make that map level too, but with copies of the wrong
//             experts, so it would soon be uneven again.
// Method      place_incrementally(), which keeps groups on their nodes. With several nodes of groups, a layer
//             may also be taken whole from replicate_robustly(). To place in full: replicate_robustly().
// Cost        docs/servers.md#what-is-moved-and-when.
// Guarantee   as few moves as place_incrementally(). The result depends on the input alone, so ranks with the
//             same input decide the same.
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
  EplbProblem of_each;  // for all windows: its weight is [W, L, E]
  // [L, num_replicas] the current expert in each physical slot. Empty: there is no map to start from.
  std::span<const std::int64_t> live = {};
  int max_moves = std::numeric_limits<int>::max();  // ignored if the current map cannot be the start
  double least_gain = 0;                            // as in IncrementalProblem
};

struct LiveResult {
  std::vector<std::int64_t> physical_to_logical;  // [L, num_replicas], rank after rank
  int moves = 0;                                  // new pairs (layer, rank, expert)
  // [L] in the worst window: now, after the moves, and with any number of moves. max_over_mean_before is
  // empty if the current map leaves an expert out or there is none.
  std::vector<double> max_over_mean_before;
  std::vector<double> max_over_mean;
  std::vector<double> reachable;
  std::string placed_in_full;  // the reason; empty if the current map was the start
};

// Throws as rebalance_experts() and place_incrementally() do, and InvalidArgument for a map of another size
// or with an expert outside 0..E-1.
LiveResult rebalance_live(const LiveProblem& problem);

}  // namespace evenkeel
