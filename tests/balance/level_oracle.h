// Every plan there is, for instances small enough: the lowest worst rank, and the fewest transfers at it.
#pragma once

#include <cstdint>

#include "tests/balance/cases.h"

namespace evenkeel {

struct BestPlan {
  std::int64_t worst = 0;
  std::int64_t transfers = 0;
};

// A piece on a rank that is no home of its expert has at least min_segment assignments, or all of them. A
// rank has at most `borrow_slots` such pieces.
BestPlan best_plan(const Case& c, std::int64_t min_segment, std::int64_t borrow_slots = 64);

// The fewest transfers of any plan whose ranks stay at or below worst.
std::int64_t fewest_transfers(const Case& c, std::int64_t min_segment, std::int64_t worst);

}  // namespace evenkeel
