// The traffic of every ordered pair of ranks under a placement, by either traffic model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/problem.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel {

// [P, P], row by sender, the diagonal what stays. In transitions (layer_to_layer) or assignments sent one way
// (dispatch_combine: out and back are the same pair of numbers turned round). Where an expert has copies, its
// assignments are spread evenly over them, sender and receiver independently.
using RankTraffic = std::vector<double>;

// From layer to the next (layer < L-1).
RankTraffic layer_to_layer_traffic(const RoutingProfile& profile, const Placement& placement, LayerId layer);
// In one layer.
RankTraffic dispatch_traffic(const SourceCounts& sources, const Placement& placement, LayerId layer);

// The exchanges of a problem: L-1 from layer to layer, or one in each layer; and the traffic of one.
int num_exchanges(const PlacementProblem& problem);
RankTraffic exchange_traffic(const PlacementProblem& problem, const Placement& placement, LayerId exchange);

// Sequences of the trace dealt to ranks in turn (sequence i lives on rank i mod P; a trace without sequences:
// its tokens in P equal blocks).
SourceCounts source_counts(TraceReader& trace, int num_ranks);
SourceCounts source_counts(TraceReader& trace, std::span<const TokenRange> ranges, int num_ranks);
// Loads spread evenly over ranks; `estimated` is set.
SourceCounts even_source_counts(const RoutingProfile& profile, int num_ranks);

}  // namespace evenkeel
