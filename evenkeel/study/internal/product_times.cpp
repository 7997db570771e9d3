#include "evenkeel/study/internal/product_times.h"

#include <algorithm>
#include <cmath>

namespace evenkeel::internal {

namespace {

// Enough for a thousandth of every number (tests/study/product_times_test.cpp).
constexpr int kRounds = 20;

// The two times of which `few` and `many` are the sums, once the overlap is known.
ProductTimes solved(const GroupTime& few, const GroupTime& many, double overlap) {
  const double shown = 1 - overlap;
  const auto a = static_cast<double>(few.rows), b = static_cast<double>(many.rows);
  const double row = (many.seconds - shown * few.seconds) / (b - shown * shown * a);
  return {std::max(row, kLeastSeconds), std::max(few.seconds - shown * a * row, kLeastSeconds), overlap};
}

}  // namespace

std::int64_t rows_between(const GroupTime& few, const GroupTime& many) {
  const double row = std::max(many.seconds, kLeastSeconds) / static_cast<double>(many.rows);
  const double rows =
      std::clamp(few.seconds / row, static_cast<double>(few.rows), static_cast<double>(many.rows));
  return std::llround(rows);
}

ProductTimes fit_products(const GroupTime& few, const GroupTime& between, const GroupTime& many) {
  ProductTimes times = solved(few, many, 1);
  for (int i = 0; i < kRounds; ++i) {
    const double products = static_cast<double>(between.rows) * times.row;
    const double hidden = products + times.weights - between.seconds;
    times = solved(few, many, std::clamp(hidden / std::min(products, times.weights), 0.0, 1.0));
  }
  return times;
}

}  // namespace evenkeel::internal
