#include "evenkeel/placement/internal/pool/fixed_load.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace evenkeel {

double fixed_scale(double total) {
  if (total <= 0) return 0;
  const double scale = std::min(std::ldexp(1.0, kFixedTotalBits) / total, std::numeric_limits<double>::max());
  return scale >= 1 ? std::floor(scale) : scale;
}

void to_fixed(std::span<const double> loads, double scale, std::span<FixedLoad> fixed) {
  for (std::size_t i = 0; i < loads.size(); ++i) fixed[i] = static_cast<FixedLoad>(loads[i] * scale);
}

}  // namespace evenkeel
