#include "evenkeel/budget/foreign_bytes.h"

#include <algorithm>

namespace evenkeel {

ForeignBytes::ForeignBytes(const ChunkShape& shape, Recompute recompute)
    : forward_each_(shape.forward_weight_bytes),
      backward_each_(shape.backward_weight_bytes),
      again_each_(recompute == Recompute::whole ? shape.forward_weight_bytes : shape.recompute_weight_bytes),
      gradient_each_(shape.gradient_bytes),
      loads_(static_cast<std::size_t>(shape.num_ranks)) {}

void ForeignBytes::clear() {
  std::ranges::fill(loads_, ForeignLoad{});
  transfers_ = 0;
}

void ForeignBytes::read(const StepPlan& plan, const LayerPlacement& placement) {
  clear();
  for (const Transfer& transfer : plan.transfers()) {
    ForeignLoad& foreign = loads_[transfer.to.offset()];
    ++foreign.weights;
    ++foreign.gradients;
    loads_[placement.owner(transfer.expert).offset()].lends = true;
  }
  if (!placement.has_single_homes()) add_copies(placement);
  transfers_ = std::ranges::max(loads_, {}, &ForeignLoad::weights).weights;
}

// Of an expert at home with several, the first owns the gradient.
void ForeignBytes::add_copies(const LayerPlacement& placement) {
  for (ExpertId expert : indices<ExpertId>(placement.num_experts()))
    for (RankId home : placement.homes(expert).subspan(1)) {
      ++loads_[home.offset()].gradients;
      loads_[placement.owner(expert).offset()].lends = true;
    }
}

}  // namespace evenkeel
