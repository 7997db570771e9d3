// Experts that each rank holds of other ranks, and lends to them, under a plan, whatever the chunks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// One rank's.
struct ForeignLoad {
  std::int64_t weights = 0;    // experts whose weights it borrows
  std::int64_t gradients = 0;  // experts whose gradients it sends to their owners
  std::int64_t lent = 0;       // experts that it owns, once for each other rank that computes gradients of it
};

class ForeignLoads {
 public:
  explicit ForeignLoads(int num_ranks) : loads_(static_cast<std::size_t>(num_ranks)) {}

  // Reads a plan. O(P + transfers), and where experts have several homes O(homes).
  void read(const StepPlan& plan, const LayerPlacement& placement);
  // Plain EP moves nothing, each expert having one home.
  void clear();

  // The most experts' weights that a rank borrows.
  std::int64_t transfers() const { return transfers_; }
  std::span<const ForeignLoad> loads() const { return loads_; }  // by rank

 private:
  void add_copies(const LayerPlacement& placement);

  std::vector<ForeignLoad> loads_;
  std::int64_t transfers_ = 0;
};

}  // namespace evenkeel
