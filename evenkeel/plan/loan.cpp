#include "evenkeel/plan/loan.h"

#include <algorithm>
#include <utility>

namespace evenkeel {

namespace {

// The transfers in which rank `me` is on the side `mine`, sorted by the rank on the other side, then by
// expert.
std::vector<Transfer> sorted_transfers(std::span<const Transfer> transfers, RankId me, RankId Transfer::*mine,
                                       RankId Transfer::*other) {
  std::vector<Transfer> chosen;
  for (const Transfer& transfer : transfers)
    if (transfer.*mine == me) chosen.push_back(transfer);
  std::ranges::sort(chosen, {}, [&](const Transfer& t) { return std::pair(t.*other, t.expert); });
  return chosen;
}

}  // namespace

void Loan::read(std::span<const Transfer> transfers, const LayerPlacement& placement, RankId me) {
  const auto ranks = static_cast<std::size_t>(placement.num_ranks());
  const auto natives = placement.natives(me);
  lent.clear();
  lent_counts.assign(ranks, 0);
  for (const Transfer& transfer : sorted_transfers(transfers, me, &Transfer::from, &Transfer::to)) {
    lent.push_back(std::ranges::lower_bound(natives, transfer.expert) - natives.begin());
    ++lent_counts[transfer.to.offset()];
  }
  borrowed.clear();
  borrowed_counts.assign(ranks, 0);
  for (const Transfer& transfer : sorted_transfers(transfers, me, &Transfer::to, &Transfer::from)) {
    borrowed.push_back(transfer.expert.value());
    ++borrowed_counts[transfer.from.offset()];
  }
}

}  // namespace evenkeel
