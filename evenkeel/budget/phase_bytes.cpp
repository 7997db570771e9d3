#include "evenkeel/budget/phase_bytes.h"

#include <algorithm>

namespace evenkeel {

std::int64_t PhaseBytes::of(const ChunkLoad& load, const ForeignLoad& foreign) const {
  return fixed + per_token * load.tokens + per_assignment * load.assignments +
         per_sent * load.positions_elsewhere() +
         per_received * (load.positions_here - load.assignments_kept) + per_position * load.positions_here +
         per_borrowed * foreign.weights + per_lent * foreign.lent + per_summed * foreign.gradients;
}

std::int64_t MeasuredBytes::bytes(ChunkUse, const ChunkLoad& load, const ForeignLoad& foreign) const {
  std::int64_t most = 0;
  for (const PhaseBytes& phase : phases_) most = std::max(most, phase.of(load, foreign));
  return most;
}

}  // namespace evenkeel
