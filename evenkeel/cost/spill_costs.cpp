#include "evenkeel/cost/spill_costs.h"

#include "evenkeel/cost/links.h"

namespace evenkeel {

StepParts step_parts(const Machine& machine, const ExpertWork& expert, bool backward) {
  const double gradients = backward ? 4 * expert.elements : 0;
  const double passes = backward ? 2 : 1;
  // Packing reads and writes; products read.
  const double packing =
      3 * (passes * read_seconds(machine, expert.bytes) + read_seconds(machine, gradients));
  return {.assignment_seconds = row_seconds(machine, expert) * (backward ? 3 : 1),
          .row_ways = 2 * passes,
          .borrowed_bytes = expert.bytes + gradients,
          .packing_seconds = packing,
          .moving_seconds = passes * machine.chunk_seconds};
}

SpillCosts spill_costs(const Machine& machine, const ExpertWork& expert, double row_bytes, bool backward) {
  const StepParts parts = step_parts(machine, expert, backward);
  const double travelling = transfer_seconds(machine, expert.bytes) +
                            transfer_seconds(machine, parts.borrowed_bytes - expert.bytes);
  return {.seconds_per_assignment =
              parts.assignment_seconds + parts.row_ways * row_bytes / machine.link_bytes_per_second,
          .seconds_per_transfer = taken_for_moving * (travelling + parts.packing_seconds),
          .seconds_per_step = taken_for_moving * parts.moving_seconds};
}

}  // namespace evenkeel
