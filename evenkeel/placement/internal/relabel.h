// Ranks renamed layer by layer, so that less is sent: what a rank holds goes to another rank as a whole.
//
// Problem     Program 2 (Eq. 8) where clusters are what the ranks of a given placement hold, copies and all.
// Method      The traffic between the ranks of the placement is that between clusters; the fast solver of
//             program 2 takes it as a profile of P experts a layer. Where groups stay in a node, nodes are
//             renamed first and ranks within each node then.
// Guarantee   Balance is untouched; the objective is never worse than before; node mates stay together where
//             asked for. In each layer a rank keeps as many slots as it had.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/placement/problem.h"

namespace evenkeel::internal {

// slots_per_rank [P]: what each rank holds in every layer. Nothing is told to limits.progress.
Placement relabel_ranks(const PlacementProblem& problem, const Placement& placement,
                        std::span<const std::int32_t> slots_per_rank, bool nodes_stay_together,
                        const SolveLimits& limits);

}  // namespace evenkeel::internal
