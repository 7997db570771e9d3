// The weights that a rank borrows and lends under a plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

struct Loan {
  std::vector<std::int64_t> borrowed;         // ids of experts received, by source, then id
  std::vector<std::int64_t> borrowed_counts;  // [P] number of experts received from each rank
  std::vector<std::int64_t> lent;             // home slots of experts sent, by destination, then id
  std::vector<std::int64_t> lent_counts;      // [P] number of experts sent to each rank

  void read(std::span<const Transfer> transfers, const LayerPlacement& placement, RankId me);
};

}  // namespace evenkeel
