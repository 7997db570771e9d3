// The traffic between every ordered pair of ranks under a placement, by either of the two traffic models.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/problem.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel {

// [P, P], one row for each sender; the diagonal is the traffic that stays on its rank. Counts transitions
// (layer_to_layer) or assignments sent one way (dispatch_combine; the way back is the transpose). An expert's
// assignments are spread evenly over its copies, independently for sender and receiver.
using RankTraffic = std::vector<double>;

// From `layer` to the next (layer < L-1).
RankTraffic layer_to_layer_traffic(const RoutingProfile& profile, const Placement& placement, LayerId layer);
// From the source ranks to the experts' ranks, in one layer.
RankTraffic dispatch_traffic(const SourceCounts& sources, const Placement& placement, LayerId layer);

// The number of exchanges (L-1 under layer_to_layer, else one per layer), and the traffic of one exchange.
int num_exchanges(const PlacementProblem& problem);
RankTraffic exchange_traffic(const PlacementProblem& problem, const Placement& placement, LayerId exchange);

// Deals the trace's sequences to ranks in turn: sequence i goes to rank i mod P. A trace without sequences is
// cut into P equal blocks of tokens.
SourceCounts source_counts(TraceReader& trace, int num_ranks);
SourceCounts source_counts(TraceReader& trace, std::span<const TokenRange> ranges, int num_ranks);
// Counts in which each load is spread evenly over the ranks; `estimated` is set.
SourceCounts even_source_counts(const RoutingProfile& profile, int num_ranks);

}  // namespace evenkeel
