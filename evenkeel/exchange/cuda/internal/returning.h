// Where the parts of an expert's gradient lie that other ranks made, for its owner to add.
//
// Blocks  A rank keeps those of experts that it does not own one behind the other: first what it borrowed, by
//         place, then the experts at home on it whose owner is another rank, ascending.
#pragma once

#include <cstdint>

#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel::cuda {

// How many of the slots of a rank before `slot` are copies of experts that other ranks own.
EVENKEEL_HOST_DEVICE inline int copies_before(const PlacementView& homes, int rank, int slot) {
  int copies = 0;
  for (int s = homes.slot_begin[rank]; s < slot; ++s) copies += homes.slot_copy[s] != 0 ? 1 : 0;
  return copies;
}

EVENKEEL_HOST_DEVICE inline bool computes(const PlanView& plan, int rank, int expert) {
  for (int s = plan.segment_begin[expert]; s < plan.segment_begin[expert + 1]; ++s)
    if (plan.segment_rank[s] == rank) return true;
  return false;
}

// each(rank, block) for each rank but the owner that computed some of `expert`: its other homes, in their
// order, then those who borrowed it, in the plan's.
template <class Each>
EVENKEEL_HOST_DEVICE void for_each_part(const RouteShape& shape, const PlacementView& homes,
                                        const StepView& step, int expert, const Each& each) {
  for (int c = homes.copies_begin[expert] + 1; c < homes.copies_begin[expert + 1]; ++c) {
    const int slot = homes.copies[c];
    const int rank = homes.slot_rank[slot];
    if (computes(step.plan, rank, expert))
      each(rank, shape.most_borrowed() + copies_before(homes, rank, slot));
  }
  for (int t = 0; t < *step.plan.num_transfers; ++t)
    if (step.plan.transfer_expert[t] == expert) each(step.plan.transfer_to[t], step.transfer_place[t]);
}

}  // namespace evenkeel::cuda
