#include "evenkeel/balance/chunk_cuts.h"

#include "evenkeel/plan/deal.h"

namespace evenkeel {

void BlockCounts::add_to(Counts& sum, int first, int end) const {
  const auto width = static_cast<std::size_t>(experts);
  const auto rows = sum.rows();
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
    for (int block = first; block < end; ++block) {
      const std::size_t from =
          (rank * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(block)) * width;
      for (std::size_t e = 0; e < width; ++e) rows[rank * width + e] += counts[from + e];
    }
}

std::vector<std::int64_t> BlockCounts::tokens_of(int first, int end) const {
  std::vector<std::int64_t> sums;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    const auto of_rank =
        tokens.subspan(rank * static_cast<std::size_t>(blocks), static_cast<std::size_t>(blocks));
    std::int64_t sum = 0;
    for (int block = first; block < end; ++block) sum += of_rank[static_cast<std::size_t>(block)];
    sums.push_back(sum);
  }
  return sums;
}

std::int64_t PhaseBytes::of(const ChunkLoad& load) const {
  return fixed + per_token * load.tokens + per_assignment * load.assignments + per_sent * load.sent +
         per_received * load.received + per_position * load.positions + per_borrowed * load.borrowed +
         per_lent * load.lent;
}

std::int64_t most_bytes(std::span<const PhaseBytes> phases, const ChunkLoad& load) {
  std::int64_t most = 0;
  for (const PhaseBytes& phase : phases) most = std::max(most, phase.of(load));
  return most;
}

std::int64_t most_bytes(const Counts& counts, const StepPlan& plan, std::span<const std::int64_t> tokens,
                        std::span<const PhaseBytes> phases) {
  std::vector<ChunkLoad> loads(tokens.size());
  for (const Transfer& transfer : plan.transfers()) {
    ++loads[transfer.to.offset()].borrowed;
    ++loads[transfer.from.offset()].lent;
  }
  Deal deal;
  std::int64_t most = 0;
  for (RankId rank : indices<RankId>(counts.num_ranks())) {
    deal.make(counts, plan, rank);
    ChunkLoad& load = loads[rank.offset()];
    load.tokens = tokens[rank.offset()];
    for (std::int64_t count : deal.sent()) load.assignments += count;
    for (std::int64_t count : deal.received()) load.positions += count;
    load.sent = load.assignments - deal.sent()[rank.offset()];
    load.received = load.positions - deal.sent()[rank.offset()];
    most = std::max(most, most_bytes(phases, load));
  }
  return most;
}

}  // namespace evenkeel
