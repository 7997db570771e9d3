#include "evenkeel/balance/transfer_bound.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <vector>

#include "evenkeel/balance/internal/step_input.h"

namespace evenkeel {

namespace {

class TransferBound {
 public:
  TransferBound(const Counts& counts, const LayerPlacement& placement, std::int64_t worst_load,
                std::span<const std::int64_t> base_load)
      : counts_(counts), placement_(placement), space_(ranks(), worst_load), native_(ranks()) {
    for (std::size_t r = 0; r < base_load.size(); ++r)
      space_[r] = std::max(Wide{0}, space_[r] - base_load[r]);
    for (RankId rank : indices<RankId>(ranks()))
      for (ExpertId expert : placement_.natives(rank)) native_[rank.offset()] += counts_.load(expert);
    for (std::size_t r = 0; r < ranks(); ++r) {
      slack_ -= balance(r);
      if (balance(r) != 0) open_.push_back(balance(r));
    }
  }

  std::int64_t count() {
    if (!placement_.has_single_homes()) return of_copies();
    const std::int64_t most_groups = groups();
    return std::max({static_cast<std::int64_t>(open_.size()) - most_groups, senders(), receivers()});
  }

 private:
  __extension__ using Wide = __int128;  // sums of balances over many ranks

  static constexpr std::size_t kMostForSubsets = 12;

  // A receiver takes at most the spare capacity that its own experts cannot fill.
  std::int64_t of_copies() {
    Wide missing = counts_.total();
    pieces_.clear();
    for (std::size_t r = 0; r < ranks(); ++r) {
      const Wide filled = std::min(native_[r], space_[r]);
      missing -= filled;
      pieces_.push_back(space_[r] - filled);
    }
    return count_largest_pieces(missing);
  }

  std::int64_t groups() { return open_.size() <= kMostForSubsets ? groups_over_subsets() : groups_by_size(); }

  // most[s]: the most groups that the ranks of subset s form; below 0 where they form none.
  std::int64_t groups_over_subsets() {
    const std::size_t all = std::size_t{1} << open_.size();
    std::vector<Wide> sum(all);
    std::vector<std::int64_t> most(all, -static_cast<std::int64_t>(all));
    most[0] = 0;
    for (std::size_t s = 1; s < all; ++s) {
      const std::size_t lowest = s & (~s + 1);
      sum[s] = sum[s ^ lowest] + open_[static_cast<std::size_t>(std::countr_zero(s))];
      for (std::size_t part = s; part > 0; part = (part - 1) & s)
        if ((part & lowest) != 0 && sum[part] <= 0) most[s] = std::max(most[s], most[s ^ part] + 1);
    }
    return std::max<std::int64_t>(most[all - 1], 0);
  }

  // A group is a single rank left short, or a pair that matches, or has at least three ranks.
  std::int64_t groups_by_size() {
    excess_.clear();
    spare_.clear();
    for (Wide b : open_) b > 0 ? excess_.push_back(b) : spare_.push_back(-b);
    std::ranges::sort(excess_);
    std::ranges::sort(spare_);
    Wide left = slack_;
    std::int64_t left_short = 0;
    for (Wide r : spare_) {
      if ((left -= r) < 0) break;
      ++left_short;
    }
    const std::int64_t pairs = matching_pairs();
    const auto ranks_open = static_cast<std::int64_t>(open_.size());
    const auto with_excess = static_cast<std::int64_t>(std::min(excess_.size(), spare_.size()));
    return left_short + std::min(with_excess, pairs + (ranks_open - 2 * pairs) / 3);
  }

  std::int64_t matching_pairs() const {
    std::int64_t pairs = 0;
    for (std::size_t e = 0, r = 0; e < excess_.size() && r < spare_.size();) {
      const bool too_little = spare_[r] < excess_[e];
      const bool too_much = spare_[r] > excess_[e] + slack_;
      pairs += !too_little && !too_much;
      e += !too_little;
      r += !too_much;
    }
    return pairs;
  }

  std::int64_t senders() {
    std::size_t widest = 0;
    for (std::size_t r = 1; r < ranks(); ++r)
      if (space_[r] > space_[widest]) widest = r;
    Wide second = 0;
    for (std::size_t r = 0; r < ranks(); ++r)
      if (r != widest) second = std::max(second, space_[r]);
    std::int64_t transfers = 0;
    for (std::size_t r = 0; r < ranks(); ++r)
      if (balance(r) > 0) transfers += transfers_away(r, r == widest ? second : space_[widest]);
    return transfers;
  }

  // A piece is an expert, or as much of it as another rank may hold, at most `largest`.
  std::int64_t transfers_away(std::size_t rank, Wide largest) {
    if (largest == 0) return 0;
    pieces_.clear();
    for (ExpertId expert : placement_.natives(RankId(rank))) {
      Wide rest = counts_.load(expert);
      for (std::size_t piece = 0; piece < ranks() && rest > 0; ++piece) {
        pieces_.push_back(std::min(rest, largest));
        rest -= pieces_.back();
      }
    }
    return count_largest_pieces(balance(rank));
  }

  // How many of the largest pieces make up `wanted`; all pieces if they are too few.
  std::int64_t count_largest_pieces(Wide wanted) {
    std::ranges::sort(pieces_, std::greater<>());
    std::int64_t count = 0;
    for (Wide piece : pieces_) {
      if (wanted <= 0) break;
      wanted -= piece;
      ++count;
    }
    return count;
  }

  // Every rank takes pieces, the largest experts first, until it is full. Then the smallest pieces are given
  // back, as long as all ranks together may stay that short (slack_).
  std::int64_t receivers() {
    by_load_.clear();
    for (ExpertId e : indices<ExpertId>(counts_.num_experts())) by_load_.push_back(e);
    std::ranges::sort(by_load_, [&](ExpertId a, ExpertId b) {
      return counts_.load(a) != counts_.load(b) ? counts_.load(a) > counts_.load(b) : a < b;
    });
    pieces_.clear();
    for (std::size_t r = 0; r < ranks(); ++r) add_received(r);
    std::ranges::sort(pieces_);
    Wide left = slack_;
    auto transfers = static_cast<std::int64_t>(pieces_.size());
    for (Wide piece : pieces_) {
      if ((left -= piece) < 0) break;
      --transfers;
    }
    return transfers;
  }

  void add_received(std::size_t rank) {
    Wide space = -balance(rank);
    for (ExpertId expert : by_load_) {
      if (space <= 0 || counts_.load(expert) == 0) return;  // the experts that follow have no load either
      if (placement_.is_home(expert, RankId(rank))) continue;
      pieces_.push_back(std::min(space, Wide{counts_.load(expert)}));
      space -= pieces_.back();
    }
  }

  std::size_t ranks() const { return static_cast<std::size_t>(placement_.num_ranks()); }
  Wide balance(std::size_t rank) const { return native_[rank] - space_[rank]; }

  const Counts& counts_;
  const LayerPlacement& placement_;
  std::vector<Wide> space_;   // [P], what a rank may hold beside its base load
  std::vector<Wide> native_;  // [P], all loads of the experts at home there
  Wide slack_ = 0;            // how far all ranks together may stay below worst_load
  std::vector<Wide> open_;    // balances other than 0
  std::vector<Wide> excess_, spare_;
  std::vector<Wide> pieces_;
  std::vector<ExpertId> by_load_;
};

}  // namespace

std::int64_t transfer_lower_bound(const Counts& counts, const LayerPlacement& placement,
                                  std::int64_t worst_load, std::span<const std::int64_t> base_load) {
  internal::require_step_input(counts, placement, base_load);
  return TransferBound(counts, placement, worst_load, base_load).count();
}

}  // namespace evenkeel
