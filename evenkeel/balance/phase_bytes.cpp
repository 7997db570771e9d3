#include "evenkeel/balance/phase_bytes.h"

#include <algorithm>
#include <vector>

#include "evenkeel/plan/deal.h"

namespace evenkeel {

std::int64_t PhaseBytes::of(const RankPart& part) const {
  return fixed + per_token * part.tokens + per_assignment * part.assignments + per_sent * part.sent +
         per_received * part.received + per_position * part.positions + per_borrowed * part.borrowed +
         per_lent * part.lent;
}

std::int64_t most_bytes(const Counts& counts, const StepPlan& plan, std::span<const std::int64_t> tokens,
                        std::span<const PhaseBytes> phases) {
  std::vector<RankPart> parts(tokens.size());
  for (const Transfer& transfer : plan.transfers()) {
    ++parts[transfer.to.offset()].borrowed;
    ++parts[transfer.from.offset()].lent;
  }
  Deal deal;
  std::int64_t most = 0;
  for (RankId rank : indices<RankId>(counts.num_ranks())) {
    deal.make(counts, plan, rank);
    RankPart& part = parts[rank.offset()];
    part.tokens = tokens[rank.offset()];
    for (std::int64_t count : deal.sent()) part.assignments += count;
    for (std::int64_t count : deal.received()) part.positions += count;
    part.sent = part.assignments - deal.sent()[rank.offset()];
    part.received = part.positions - deal.sent()[rank.offset()];
    for (const PhaseBytes& phase : phases) most = std::max(most, phase.of(part));
  }
  return most;
}

}  // namespace evenkeel
