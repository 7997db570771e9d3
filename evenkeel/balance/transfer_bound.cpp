#include "evenkeel/balance/transfer_bound.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <vector>

#include "evenkeel/balance/step_input.h"

namespace evenkeel {

namespace {

__extension__ using Wide = __int128;  // sums of balances over many ranks

constexpr std::size_t kMostForSubsets = 12;

class TransferBound {
 public:
  TransferBound(const Counts& counts, const LayerPlacement& placement, std::int64_t worst_load,
                std::span<const std::int64_t> base_load)
      : counts_(counts), placement_(placement), space_(ranks(), Wide{worst_load}), native_(ranks(), 0) {
    for (std::size_t r = 0; r < base_load.size(); ++r)
      space_[r] = std::max(Wide{0}, space_[r] - base_load[r]);
    for (RankId rank : indices<RankId>(ranks()))
      for (ExpertId expert : placement.natives(rank)) native_[rank.offset()] += counts.load(expert);
  }

  std::int64_t of_single_homes() const { return std::max({unbalanced() - groups(), senders(), receivers()}); }

  // Every receiver adds at most the space that its own experts cannot fill.
  std::int64_t of_copies() const {
    Wide missing = counts_.total();
    std::vector<Wide> gains;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const Wide filled = std::min(native_[r], space_[r]);
      missing -= filled;
      gains.push_back(space_[r] - filled);
    }
    return count_largest_until(gains, missing);
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(placement_.num_ranks()); }
  Wide balance(std::size_t rank) const { return native_[rank] - space_[rank]; }

  Wide slack() const {
    Wide sum = 0;
    for (std::size_t r = 0; r < ranks(); ++r) sum -= balance(r);
    return sum;
  }

  std::int64_t unbalanced() const {
    return static_cast<std::int64_t>(ranks()) - std::ranges::count(balances(), Wide{0});
  }

  std::vector<Wide> balances() const {
    std::vector<Wide> all;
    for (std::size_t r = 0; r < ranks(); ++r) all.push_back(balance(r));
    return all;
  }

  std::int64_t groups() const {
    std::vector<Wide> open = balances();
    std::erase(open, Wide{0});
    return open.size() <= kMostForSubsets ? groups_over_subsets(open) : groups_by_size(open);
  }

  // most[s]: the most groups that the ranks of subset s form; below 0 where they cannot.
  static std::int64_t groups_over_subsets(const std::vector<Wide>& open) {
    const std::size_t all = std::size_t{1} << open.size();
    std::vector<Wide> sum(all, 0);
    std::vector<std::int64_t> most(all, -static_cast<std::int64_t>(all));
    most[0] = 0;
    for (std::size_t s = 1; s < all; ++s) {
      const std::size_t lowest = s & (~s + 1);
      sum[s] = sum[s ^ lowest] + open[static_cast<std::size_t>(std::countr_zero(s))];
      for (std::size_t part = s; part > 0; part = (part - 1) & s)
        if ((part & lowest) != 0 && sum[part] <= 0) most[s] = std::max(most[s], most[s ^ part] + 1);
    }
    return std::max<std::int64_t>(most[all - 1], 0);
  }

  // A group is a rank left short, or a pair that matches, or has three ranks at least.
  std::int64_t groups_by_size(const std::vector<Wide>& open) const {
    std::vector<Wide> excess, room;
    for (Wide b : open) b > 0 ? excess.push_back(b) : room.push_back(-b);
    std::ranges::sort(excess);
    std::ranges::sort(room);
    Wide left = slack();
    std::int64_t short_ranks = 0;
    for (Wide r : room) {
      if ((left -= r) < 0) break;
      ++short_ranks;
    }
    const std::int64_t pairs = matching_pairs(excess, room);
    const auto ranks_open = static_cast<std::int64_t>(open.size());
    const auto with_excess = static_cast<std::int64_t>(std::min(excess.size(), room.size()));
    return short_ranks + std::min(with_excess, pairs + (ranks_open - 2 * pairs) / 3);
  }

  std::int64_t matching_pairs(const std::vector<Wide>& excess, const std::vector<Wide>& room) const {
    std::int64_t pairs = 0;
    for (std::size_t e = 0, r = 0; e < excess.size() && r < room.size();) {
      if (room[r] < excess[e]) {
        ++r;
      } else if (room[r] > excess[e] + slack()) {
        ++e;
      } else {
        ++pairs, ++e, ++r;
      }
    }
    return pairs;
  }

  // How many of the largest amounts make up `wanted`; all of them if they do not.
  static std::int64_t count_largest_until(std::vector<Wide>& amounts, Wide wanted) {
    std::ranges::sort(amounts, std::greater<>());
    std::int64_t count = 0;
    for (Wide amount : amounts) {
      if (wanted <= 0) break;
      wanted -= amount;
      ++count;
    }
    return count;
  }

  std::int64_t senders() const {
    std::int64_t transfers = 0;
    for (std::size_t r = 0; r < ranks(); ++r)
      if (balance(r) > 0) transfers += transfers_away(r);
    return transfers;
  }

  std::int64_t transfers_away(std::size_t rank) const {
    Wide most = 0;
    for (std::size_t r = 0; r < ranks(); ++r)
      if (r != rank) most = std::max(most, space_[r]);
    if (most == 0) return 0;
    std::vector<Wide> pieces;
    for (ExpertId expert : placement_.natives(RankId(rank))) {
      Wide rest = counts_.load(expert);
      for (std::size_t piece = 0; piece < ranks() && rest > 0; ++piece) {
        pieces.push_back(std::min(rest, most));
        rest -= pieces.back();
      }
    }
    return count_largest_until(pieces, balance(rank));
  }

  // Every rank takes pieces, the largest experts first, until it is full; then those whose loss costs least
  // are given back while all ranks together may still stay that short.
  std::int64_t receivers() const {
    std::vector<ExpertId> order;
    for (ExpertId e : indices<ExpertId>(counts_.num_experts())) order.push_back(e);
    std::ranges::stable_sort(order,
                             [&](ExpertId a, ExpertId b) { return counts_.load(a) > counts_.load(b); });
    std::vector<Wide> pieces;
    for (std::size_t r = 0; r < ranks(); ++r) add_received(r, order, pieces);
    std::ranges::sort(pieces);
    Wide left = slack();
    auto transfers = static_cast<std::int64_t>(pieces.size());
    for (Wide piece : pieces) {
      if ((left -= piece) < 0) break;
      --transfers;
    }
    return transfers;
  }

  void add_received(std::size_t rank, const std::vector<ExpertId>& order, std::vector<Wide>& pieces) const {
    Wide room = -balance(rank);
    for (ExpertId expert : order) {
      if (room <= 0) return;
      if (placement_.is_home(expert, RankId(rank)) || counts_.load(expert) == 0) continue;
      pieces.push_back(std::min(room, Wide{counts_.load(expert)}));
      room -= pieces.back();
    }
  }

  const Counts& counts_;
  const LayerPlacement& placement_;
  std::vector<Wide> space_;   // [P], what a rank may hold beside its base load
  std::vector<Wide> native_;  // [P], all loads of the experts at home there
};

}  // namespace

std::int64_t transfer_lower_bound(const Counts& counts, const LayerPlacement& placement,
                                  std::int64_t worst_load, std::span<const std::int64_t> base_load) {
  require_step_input(counts, placement, base_load);
  const TransferBound bound(counts, placement, worst_load, base_load);
  return placement.has_single_homes() ? bound.of_single_homes() : bound.of_copies();
}

}  // namespace evenkeel
