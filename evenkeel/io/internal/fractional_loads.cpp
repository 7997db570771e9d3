#include "evenkeel/io/internal/fractional_loads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

namespace {

// Totals of loads that were scaled. Far below 2^63, so that profiles can be added up and multiplied.
constexpr int scaled_total_bits = 52;

// The least power of two that makes `value` whole; 0 for whole numbers.
int fraction_bits(double value) {
  if (value == std::floor(value)) return 0;
  int exponent = 0;
  double mantissa = std::frexp(value, &exponent);  // value = mantissa * 2^exponent, mantissa in [0.5, 1)
  int bits = 0;
  while (mantissa != std::floor(mantissa)) {
    mantissa *= 2;
    ++bits;
  }
  return bits - exponent;
}

double checked_total(std::span<const double> values, const std::string& file, const std::string& key) {
  double total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || values[i] < 0)
      throw parse_error(file, key, "element {} is {}; a load is a number of at least 0", i, values[i]);
    total += values[i];
  }
  if (total >= 0x1p63) throw parse_error(file, key, "loads add up to {}, above 2^63-1", total);
  return total;
}

int scaling_exponent(std::span<const double> values, double total) {
  int bits = 0;
  for (double value : values) bits = std::max(bits, fraction_bits(value));
  if (bits == 0) return 0;
  int total_exponent = 0;
  std::frexp(total, &total_exponent);  // total < 2^total_exponent
  return std::min(bits, scaled_total_bits - total_exponent);
}

}  // namespace

void ScaledLoads::note_in(std::vector<std::string>& notes) const {
  if (exponent != 0)
    notes.push_back(fmt::format("loads that are not whole numbers are scaled by 2^{}", exponent));
}

ScaledLoads scaled_loads(std::span<const double> values, const std::string& file, const std::string& key) {
  const double total = checked_total(values, file, key);
  ScaledLoads scaled{.loads = {}, .exponent = scaling_exponent(values, total)};
  scaled.loads.reserve(values.size());
  for (double value : values) {
    const auto load = static_cast<std::int64_t>(std::nearbyint(std::ldexp(value, scaled.exponent)));
    scaled.loads.push_back(value > 0 ? std::max<std::int64_t>(load, 1) : load);
  }
  return scaled;
}

}  // namespace evenkeel::internal
