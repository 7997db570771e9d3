#include "evenkeel/training_memory/mact.h"

#include <algorithm>
#include <functional>
#include <string>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

void require_bins(std::span<const std::int64_t> bins) {
  const bool ascend = std::ranges::adjacent_find(bins, std::ranges::greater_equal()) == bins.end();
  if (bins.empty() || bins.front() < 1 || !ascend)
    throw InvalidArgument("bins", "are not chunk counts in ascending order",
                          "ascending numbers, 1 or more, such as 1,2,4,8");
}

}  // namespace

MactChoice choose_bin(std::int64_t least_chunks, std::span<const std::int64_t> bins) {
  require_bins(bins);
  const auto bin = std::ranges::lower_bound(bins, least_chunks);
  const bool promised = least_chunks > 0 && bin != bins.end();
  return {least_chunks, promised ? *bin : bins.back(), promised};
}

MactChoice mact(std::int64_t received, std::int64_t most_received, std::span<const std::int64_t> bins) {
  if (received < 0) throw InvalidArgument("received", "is " + std::to_string(received), "0 or more rows");
  // A rank that received nothing holds nothing, so one chunk is enough.
  if (received == 0) return choose_bin(1, bins);
  if (most_received <= 0) return choose_bin(0, bins);
  return choose_bin(received / most_received + (received % most_received != 0 ? 1 : 0), bins);
}

}  // namespace evenkeel
