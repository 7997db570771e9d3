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

std::int64_t most_bytes(const Counts& counts, const StepPlan& plan, std::span<const std::int64_t> tokens,
                        const ChunkBytes& bytes) {
  std::vector<std::int64_t> borrowed(tokens.size()), lent(tokens.size());
  for (const Transfer& transfer : plan.transfers()) {
    ++borrowed[transfer.to.offset()];
    ++lent[transfer.from.offset()];
  }
  Deal deal;
  std::int64_t most = 0;
  for (RankId rank : indices<RankId>(counts.num_ranks())) {
    deal.make(counts, plan, rank);
    const std::size_t r = rank.offset();
    std::int64_t assignments = 0, positions = 0;
    for (std::int64_t count : deal.sent()) assignments += count;
    for (std::int64_t count : deal.received()) positions += count;
    const std::int64_t kept = deal.sent()[r];
    most = std::max(most, bytes.fixed + bytes.per_token * tokens[r] + bytes.per_assignment * assignments +
                              bytes.per_sent * (assignments - kept) +
                              bytes.per_received * (positions - kept) + bytes.per_position * positions +
                              bytes.per_borrowed * borrowed[r] + bytes.per_lent * lent[r]);
  }
  return most;
}

}  // namespace evenkeel
