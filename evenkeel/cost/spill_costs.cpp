#include "evenkeel/cost/spill_costs.h"

namespace evenkeel {

namespace {

// Taken for what moving costs, of the sum of its parts. Seen were 1.3 in training and 1.6 forward, on the
// shipped layer: pieces of few rows multiply slower, and of equally loaded ranks the slowest counts.
constexpr double kTaken = 2;

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
  made.seconds_per_transfer *= kTaken;
  made.seconds_per_step = kTaken * cost.chunk_seconds * passes;
  return made;
}

}  // namespace evenkeel
