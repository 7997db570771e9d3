#include "evenkeel/routing/imbalance.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/base/error.h"

namespace evenkeel {

Imbalance imbalance(std::span<const std::int64_t> loads) {
  std::int64_t total = 0;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const std::int64_t load = loads[i];
    if (load < 0) throw InvalidArgument("loads", fmt::format("element {} is {}", i, load), "0 or more");
    if (__builtin_add_overflow(total, load, &total))
      throw InvalidArgument("loads", "the total is above 2^63-1", "at most 2^63-1");
    most = std::max(most, load);
  }
  if (total == 0) return {};
  const double mean = static_cast<double>(total) / static_cast<double>(loads.size());
  const double max = static_cast<double>(most);
  return {max / mean, mean / max, (max - mean) / mean};
}

}  // namespace evenkeel
