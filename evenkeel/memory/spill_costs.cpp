#include "evenkeel/memory/spill_costs.h"

namespace evenkeel {

namespace {

// What moving was seen to cost, of the sum of its parts: 1.3 in training to 1.6 forward on the shipped layer.
// Pieces of few rows multiply slower than many rows do, and of equally loaded ranks the slowest counts.
constexpr double kSeen = 2;

}  // namespace

SpillCosts spill_costs(const SpilledExpert& expert, const CostModel& cost, bool backward) {
  const auto elements = static_cast<double>(expert.elements);
  const double weights = elements * static_cast<double>(expert.bytes), gradients = 4 * elements;
  const double row = static_cast<double>(expert.hidden * expert.bytes);
  const double passes = backward ? 2 : 1;
  SpillCosts made;
  made.seconds_per_assignment = 2 * elements * (backward ? 3 : 1) / cost.flops_per_second +
                                2 * row * passes / cost.link_bytes_per_second;
  // Packing reads and writes; products read.
  made.seconds_per_transfer =
      weights / cost.link_bytes_per_second + 3 * weights * passes / cost.weight_bytes_per_second;
  if (backward)
    made.seconds_per_transfer +=
        gradients / cost.link_bytes_per_second + 3 * gradients / cost.weight_bytes_per_second;
  made.seconds_per_transfer *= kSeen;
  made.seconds_per_step = kSeen * cost.chunk_seconds * passes;
  return made;
}

}  // namespace evenkeel
