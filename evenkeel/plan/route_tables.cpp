#include "evenkeel/plan/route_tables.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/base/check.h"

namespace evenkeel {

namespace {

// Element i of the result is `begin` plus the sum of the counts before i.
std::vector<std::int64_t> begins_of(const std::vector<std::int64_t>& counts, std::int64_t begin) {
  std::vector<std::int64_t> begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), begin);
  return begins;
}

}  // namespace

void RouteTables::make(const Deal& deal, const LayerPlacement& placement, RankId me, const Loan& loan) {
  sent_counts.assign(deal.sent().begin(), deal.sent().end());
  received_counts.assign(deal.received().begin(), deal.received().end());
  own = std::exchange(sent_counts[me.offset()], 0);
  received_counts[me.offset()] = 0;

  std::vector<std::int64_t> begins = begins_of(sent_counts, 0);
  begins[me.offset()] = std::reduce(sent_counts.begin(), sent_counts.end());
  sent.clear();
  for (ExpertId expert : indices<ExpertId>(deal.num_experts()))
    for (const Deal::Piece& piece : deal.pieces(expert))
      sent.push_back({begins[piece.rank.offset()] + piece.before, piece.count});
  find_computed(deal, placement, me, loan);
}

void RouteTables::find_computed(const Deal& deal, const LayerPlacement& placement, RankId me,
                                const Loan& loan) {
  const auto natives = placement.natives(me);
  const auto slot_of = [&](ExpertId expert) {
    const auto home = std::ranges::lower_bound(natives, expert);
    if (home != natives.end() && *home == expert) return home - natives.begin();
    const auto lies = std::ranges::find(loan.borrowed, expert.value());
    EVENKEEL_CHECK(lies != loan.borrowed.end());
    return std::ssize(natives) + (lies - loan.borrowed.begin());
  };
  std::vector<std::int64_t> next = begins_of(received_counts, own);  // [source] the next number to give
  next[me.offset()] = 0;
  computed.clear();
  native_positions = 0;
  for (std::size_t i = 0; i < deal.experts_here().size(); ++i) {
    const std::int64_t slot = slot_of(deal.experts_here()[i]);
    for (std::size_t source = 0; source < next.size(); ++source) {
      const std::int64_t count = deal.arrivals(i)[source];
      if (count == 0) continue;
      computed.push_back({next[source], slot, count});
      next[source] += count;
      if (slot < std::ssize(natives)) native_positions += count;
    }
  }
  std::ranges::stable_sort(computed, {}, &ComputedRun::slot);
}

}  // namespace evenkeel
