#include "evenkeel/budget/foreign_loads.h"

#include <algorithm>

namespace evenkeel {

void ForeignLoads::clear() {
  std::ranges::fill(loads_, ForeignLoad{});
  transfers_ = 0;
}

void ForeignLoads::read(const StepPlan& plan, const LayerPlacement& placement) {
  clear();
  for (const Transfer& transfer : plan.transfers()) {
    ForeignLoad& foreign = loads_[transfer.to.offset()];
    ++foreign.weights;
    ++foreign.gradients;
    ++loads_[placement.owner(transfer.expert).offset()].lent;
  }
  if (!placement.has_single_homes()) add_copies(placement);
  transfers_ = std::ranges::max(loads_, {}, &ForeignLoad::weights).weights;
}

// The first of several homes owns the gradient.
void ForeignLoads::add_copies(const LayerPlacement& placement) {
  for (ExpertId expert : indices<ExpertId>(placement.num_experts()))
    for (RankId home : placement.homes(expert).subspan(1)) {
      ++loads_[home.offset()].gradients;
      ++loads_[placement.owner(expert).offset()].lent;
    }
}

}  // namespace evenkeel
