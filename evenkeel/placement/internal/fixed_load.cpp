#include "evenkeel/placement/internal/fixed_load.h"

#include <algorithm>
#include <cstddef>

namespace evenkeel {

void to_fixed(std::span<const double> loads, double total, std::span<FixedLoad> fixed) {
  if (total <= 0) {
    std::ranges::fill(fixed, FixedLoad{0});
    return;
  }
  for (std::size_t i = 0; i < loads.size(); ++i)
    fixed[i] = static_cast<FixedLoad>(loads[i] / total * static_cast<double>(kFixedTotal) + 0.5);
}

}  // namespace evenkeel
