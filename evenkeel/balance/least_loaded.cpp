#include "evenkeel/balance/least_loaded.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/internal/step_input.h"

namespace evenkeel {

namespace {

using internal::copy_share;

__extension__ using Wide = __int128;  // products of two loads

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kManyRanks = 256;  // from here on a tree finds the lightest rank sooner than a scan
constexpr RankId kNoRank(-1);

}  // namespace

void LeastLoaded::plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                       std::span<const std::int64_t> base_load) {
  internal::require_step_input(counts, placement, base_load);
  reserve(counts.num_experts(), counts.num_ranks());
  if (stays_home(counts)) return Ep::keep_home(counts, placement, plan);
  begin(counts, placement, base_load);
  plan.begin(placement);
  for (const auto& [largest_share, expert] : order_) {
    plan.begin_expert(expert);
    const auto homes = placement.homes(expert);
    for (std::size_t copy = 0; copy < homes.size(); ++copy)
      assign(copy_share(counts.load(expert), homes.size(), copy), homes[copy], plan);
  }
}

void LeastLoaded::reserve(int num_experts, int num_ranks) {
  order_.reserve(static_cast<std::size_t>(num_experts));
  sorting_.reserve(static_cast<std::size_t>(num_experts));
  committed_.resize(static_cast<std::size_t>(num_ranks));
  if (committed_.size() >= kManyRanks) tree_.resize(2 * std::bit_ceil(committed_.size()));
}

bool LeastLoaded::stays_home(const Counts& counts) const {
  if (counts.num_ranks() == 1 || counts.total() < counts.num_ranks()) return true;
  const Wide largest = *std::ranges::max_element(counts.loads());
  return largest * counts.num_experts() * 1000 <
         Wide{options_.imbalance_threshold_thousandths} * counts.total();
}

// Computes the capacity, what every rank has at home, and the order of experts (Algorithm 2, before its
// loop).
void LeastLoaded::begin(const Counts& counts, const LayerPlacement& placement,
                        std::span<const std::int64_t> base_load) {
  const std::int64_t total = std::accumulate(base_load.begin(), base_load.end(), counts.total());
  const Wide capacity =
      Wide{options_.capacity_factor_thousandths} * total / (Wide{1000} * counts.num_ranks());
  capacity_ = static_cast<std::int64_t>(std::min(capacity, Wide{kLargest}));

  committed_.assign(static_cast<std::size_t>(counts.num_ranks()), 0);
  std::ranges::copy(base_load, committed_.begin());
  order_.clear();
  for (ExpertId expert : indices<ExpertId>(counts.num_experts())) {
    const std::int64_t load = counts.load(expert);
    if (load == 0) continue;
    const auto homes = placement.homes(expert);
    for (std::size_t copy = 0; copy < homes.size(); ++copy)
      committed_[homes[copy]] += copy_share(load, homes.size(), copy);
    order_.push_back({copy_share(load, homes.size(), 0), expert});
  }
  sort_experts();
  if (committed_.size() >= kManyRanks) build_tree();
}

// A stable radix sort, one byte of the load a pass, as many passes as the largest load has bytes: 128 experts
// of loads below 2^24 take well under a microsecond. On entry order_ is by ascending id.
void LeastLoaded::sort_experts() {
  if (order_.size() <= 24)
    return std::sort(order_.begin(), order_.end(), [](const LoadedExpert& a, const LoadedExpert& b) {
      return a.load != b.load ? a.load > b.load : a.expert < b.expert;
    });
  std::uint64_t bits = 0;
  for (const LoadedExpert& each : order_) bits |= static_cast<std::uint64_t>(each.load);
  sorting_.resize(order_.size());
  for (int shift = 0; shift < 64 && (bits >> shift) != 0; shift += 8) {
    std::array<std::uint32_t, 256> next{};
    const auto slot = [shift](const LoadedExpert& each) {  // large bytes come first
      return 255 - ((static_cast<std::uint64_t>(each.load) >> shift) & 255);
    };
    for (const LoadedExpert& each : order_) ++next[slot(each)];
    std::uint32_t begin = 0;
    for (std::uint32_t& n : next) begin += std::exchange(n, begin);
    for (const LoadedExpert& each : order_) sorting_[next[slot(each)]++] = each;
    order_.swap(sorting_);
  }
}

// The three cases of Algorithm 2. Later decisions see only the sum of given and pending work, which changes
// only by what leaves home.
void LeastLoaded::assign(std::int64_t share, RankId home, StepPlan& plan) {
  const std::int64_t spare = capacity_ - (committed_[home] - share);
  const std::int64_t kept = std::clamp(spare, std::int64_t{0}, share);
  if (kept > 0) plan.give(home, kept);
  commit(home, kept - share);
  if (kept < share) spill(share - kept, home, plan);
}

// Algorithm 3. Its loop over ranks can end at the first rank: if a piece is too small on the rank with the
// most spare capacity, it is too small on all.
void LeastLoaded::spill(std::int64_t rest, RankId home, StepPlan& plan) {
  while (rest > 0) {
    const RankId rank = least_loaded_other(home);
    const std::int64_t spare = capacity_ - committed_[rank];
    const bool piece_fits = spare > 0 && spare >= options_.min_segment;
    const std::int64_t piece = piece_fits ? std::min(rest, spare) : rest;
    plan.give(rank, piece);
    commit(rank, piece);
    rest -= piece;
  }
}

void LeastLoaded::commit(RankId rank, std::int64_t assignments) {
  committed_[rank] += assignments;
  if (committed_.size() < kManyRanks || assignments == 0) return;
  for (std::size_t at = (rank.offset() + tree_.size() / 2) / 2; at > 0; at /= 2)
    tree_[at] = lighter(tree_[2 * at], tree_[2 * at + 1]);
}

void LeastLoaded::build_tree() {
  const std::size_t leaves = tree_.size() / 2;
  for (std::size_t leaf = 0; leaf < leaves; ++leaf)
    tree_[leaves + leaf] = leaf < committed_.size() ? RankId(leaf) : kNoRank;
  for (std::size_t at = leaves; --at > 0;) tree_[at] = lighter(tree_[2 * at], tree_[2 * at + 1]);
}

// The less committed of two ranks, the first if they are equal. kNoRank is never chosen over a rank.
RankId LeastLoaded::lighter(RankId a, RankId b) const {
  if (a == kNoRank || b == kNoRank) return a == kNoRank ? b : a;
  if (committed_[a] != committed_[b]) return committed_[a] < committed_[b] ? a : b;
  return std::min(a, b);
}

RankId LeastLoaded::least_loaded_other(RankId home) const {
  if (committed_.size() >= kManyRanks) {
    RankId least = kNoRank;
    for (std::size_t at = home.offset() + tree_.size() / 2; at > 1; at /= 2)
      least = lighter(least, tree_[at ^ 1]);
    return least;
  }
  RankId least(home == RankId(0) ? 1 : 0);
  for (RankId rank : indices<RankId>(committed_.size()))
    if (rank != home && committed_[rank] < committed_[least]) least = rank;
  return least;
}

}  // namespace evenkeel
