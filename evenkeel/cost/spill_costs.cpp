#include "evenkeel/cost/spill_costs.h"

#include "evenkeel/cost/links.h"

namespace evenkeel {

namespace {

// Taken for what moving costs, of the sum of its parts. Seen were 1.3 in training and 1.6 forward, on the
// shipped layer: pieces of few rows multiply slower, and of equally loaded ranks the slowest counts.
constexpr double kTaken = 2;

}  // namespace

SpillCosts spill_costs(const Machine& machine, const ExpertWork& expert, double row_bytes, bool backward) {
  const double gradients = 4 * expert.elements;
  const double passes = backward ? 2 : 1;
  SpillCosts made;
  made.seconds_per_assignment = row_seconds(machine, expert) * (backward ? 3 : 1) +
                                2 * row_bytes * passes / machine.link_bytes_per_second;
  // Packing reads and writes; products read.
  made.seconds_per_transfer =
      transfer_seconds(machine, expert.bytes) + 3 * passes * read_seconds(machine, expert.bytes);
  if (backward)
    made.seconds_per_transfer += transfer_seconds(machine, gradients) + 3 * read_seconds(machine, gradients);
  made.seconds_per_transfer *= kTaken;
  made.seconds_per_step = kTaken * machine.chunk_seconds * passes;
  return made;
}

}  // namespace evenkeel
