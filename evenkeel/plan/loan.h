// The weights that a rank borrows and lends under a plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

struct Loan {
  std::vector<std::int64_t> borrowed;         // experts received, by source, then id
  std::vector<std::int64_t> borrowed_counts;  // [P] how many of them come from each rank
  std::vector<std::int64_t> lent;             // slots at home of experts sent, by destination, then id
  std::vector<std::int64_t> lent_counts;      // [P] how many of them go to each rank

  void read(std::span<const Transfer> transfers, const LayerPlacement& placement, RankId me);
};

}  // namespace evenkeel
