#include "evenkeel/study/round_ratio.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace evenkeel {

RoundRatio round_ratio(const std::vector<double>& ascending) {
  if (ascending.empty()) return {};
  // The number of rounds below the median is distributed like heads in n coin tosses; 95 % of cases are
  // within n / 2 +- 0.98 sqrt(n).
  const auto rounds = static_cast<double>(ascending.size());
  const auto outside = static_cast<std::size_t>(std::max(0.0, (rounds - 1 - 1.96 * std::sqrt(rounds)) / 2));
  return {quantile(ascending, 0.5), (quantile(ascending, 0.9) - quantile(ascending, 0.1)) / 2,
          ascending[outside], ascending[ascending.size() - 1 - outside]};
}

double quantile(const std::vector<double>& ascending, double share) {
  if (ascending.empty()) return 0;
  const double place = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  return std::lerp(ascending[below], ascending[above], place - static_cast<double>(below));
}

}  // namespace evenkeel
