#include "evenkeel/budget/byte_model.h"

#include <algorithm>

namespace evenkeel {

void ForeignLoads::read(const StepPlan& plan, const LayerPlacement& placement) {
  clear();
  const auto add_gradient = [&](ExpertId expert, RankId away) {
    ++loads_[away.offset()].gradients;
    ++loads_[placement.owner(expert).offset()].lent;
  };
  for (const Transfer& transfer : plan.transfers()) {
    ++loads_[transfer.to.offset()].weights;
    add_gradient(transfer.expert, transfer.to);
  }
  transfers_ = std::ranges::max(loads_, {}, &ForeignLoad::weights).weights;
  if (placement.has_single_homes()) return;
  for (ExpertId expert : indices<ExpertId>(placement.num_experts()))
    for (RankId home : placement.homes(expert).subspan(1)) add_gradient(expert, home);
}

}  // namespace evenkeel
