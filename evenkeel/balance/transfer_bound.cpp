#include "evenkeel/balance/transfer_bound.h"

#include "evenkeel/balance/internal/transfer_bound.h"

namespace evenkeel {

std::int64_t transfer_lower_bound(const Counts& counts, const LayerPlacement& placement,
                                  std::int64_t worst_load, std::span<const std::int64_t> base_load) {
  return internal::TransferBound().of(counts, placement, worst_load, base_load);
}

}  // namespace evenkeel
