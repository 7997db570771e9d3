// Finds the parts of an expert's gradient that other ranks computed, for its owner to add.
//
// Blocks  A rank stores the gradients of experts that it does not own in consecutive blocks: first borrowed
//         experts, by slot, then its native experts that another rank owns, ascending.
#pragma once

#include <cstdint>

#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel::cuda {

// Counts the rank's slots before `slot` whose experts other ranks own.
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

// Calls each(rank, block) for each rank, except the owner, that computed assignments of `expert`: first its
// other homes, in their order, then its borrowers, in the plan's order.
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
    if (step.plan.transfer_expert[t] == expert) each(step.plan.transfer_to[t], step.borrowed_index[t]);
}

}  // namespace evenkeel::cuda
