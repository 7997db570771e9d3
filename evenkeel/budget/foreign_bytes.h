// The bytes that each rank holds of other ranks' experts under a plan, whatever the chunks: borrowed weights
// and gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/budget/memory_options.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// Weights and gradients that a rank holds in backward of other ranks' experts, and whether others hold some
// of its own.
struct ForeignLoad {
  std::int64_t weights = 0;    // experts whose weights it borrows
  std::int64_t gradients = 0;  // experts whose gradients it sends to their owners
  bool lends = false;          // others compute experts that it owns, whose gradients come one at a time
};

class ForeignBytes {
 public:
  ForeignBytes(const ChunkShape& shape, Recompute recompute);

  // Of a plan. O(P + transfers), and where experts have several homes O(homes).
  void read(const StepPlan& plan, const LayerPlacement& placement);
  // Of plain EP, each expert having one home: nothing.
  void clear();

  // The most experts' weights that a rank borrows.
  std::int64_t transfers() const { return transfers_; }
  const ForeignLoad& load(std::size_t rank) const { return loads_[rank]; }
  // Of a rank in forward, in backward of what was kept, and in backward where something is computed again.
  std::int64_t in_forward(std::size_t rank) const { return loads_[rank].weights * forward_each_; }
  std::int64_t in_backward(std::size_t rank) const {
    return loads_[rank].weights * backward_each_ + loads_[rank].gradients * gradient_each_;
  }
  std::int64_t in_recompute(std::size_t rank) const {
    return in_backward(rank) + loads_[rank].weights * again_each_;
  }

 private:
  void add_copies(const LayerPlacement& placement);

  // Of one expert.
  std::int64_t forward_each_, backward_each_, again_each_, gradient_each_;
  std::vector<ForeignLoad> loads_;  // by rank
  std::int64_t transfers_ = 0;
};

}  // namespace evenkeel
