// Tries all plans of a small instance: the lowest worst rank load, and the fewest transfers that reach it.
#pragma once

#include <cstdint>

#include "tests/balance/cases.h"

namespace evenkeel {

struct BestPlan {
  std::int64_t worst = 0;
  std::int64_t transfers = 0;
};

// A piece away from its expert's homes has at least `min_segment` assignments, or all of the expert's. A rank
// has at most `borrow_slots` such pieces.
BestPlan best_plan(const Case& c, std::int64_t min_segment, std::int64_t borrow_slots = 64);

// The fewest transfers of any plan with no rank load above `worst`.
std::int64_t fewest_transfers(const Case& c, std::int64_t min_segment, std::int64_t worst);

}  // namespace evenkeel
