#include "evenkeel/balance/internal/step_input.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

void require_step_input(const Counts& counts, const LayerPlacement& placement,
                        std::span<const std::int64_t> base_load) {
  if (counts.num_experts() != placement.num_experts())
    throw InvalidArgument("counts", fmt::format("{} experts", counts.num_experts()),
                          fmt::format("{}, as in the placement", placement.num_experts()));
  if (counts.num_ranks() != placement.num_ranks())
    throw InvalidArgument("counts", fmt::format("{} ranks", counts.num_ranks()),
                          fmt::format("{}, as in the placement", placement.num_ranks()));
  if (base_load.empty()) return;
  if (base_load.size() != static_cast<std::size_t>(counts.num_ranks()))
    throw InvalidArgument("base_load",
                          fmt::format("{} numbers for {} ranks", base_load.size(), counts.num_ranks()),
                          fmt::format("none, or one for each of the {} ranks", counts.num_ranks()));
  std::int64_t sum = counts.total();
  for (std::size_t rank = 0; rank < base_load.size(); ++rank) {
    if (base_load[rank] < 0)
      throw InvalidArgument("base_load", fmt::format("{} on rank {}", base_load[rank], rank), "0 or more");
    if (__builtin_add_overflow(sum, base_load[rank], &sum))
      throw InvalidArgument("base_load", "the total with the experts' loads is above 2^63-1",
                            "at most 2^63-1");
  }
}

}  // namespace evenkeel::internal
