// The times that an expert's products take, fitted to three measured times.
//
// A group of m rows takes   max(m r, g) + (1 - o) min(m r, g)   (evenkeel/budget/step_cost.h), with r of a
// row among many, g of reading the weights, and o how much the one hides behind the other.
#pragma once

#include <cstdint>

namespace evenkeel::internal {

// A machine on which something takes no time at all would be a defect of the measurement.
inline constexpr double kLeastSeconds = 1e-9;

// Seconds of one group of so many rows, its weights in no cache.
struct GroupTime {
  std::int64_t rows = 0;
  double seconds = 0;
};

struct ProductTimes {
  double row = 0;
  double weights = 0;
  double overlap = 0;  // 0..1
};

// `few` rows wait for the weights, `many` for arithmetic; `between` are those where both are about alike.
// Where no times above 0 with an overlap in 0..1 give these three, the nearest that are allowed are returned.
ProductTimes fit_products(const GroupTime& few, const GroupTime& between, const GroupTime& many);

// The rows where both are about alike, as far as two times tell; between their rows.
std::int64_t rows_between(const GroupTime& few, const GroupTime& many);

}  // namespace evenkeel::internal
