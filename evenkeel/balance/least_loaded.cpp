#include "evenkeel/balance/least_loaded.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/step_input.h"

namespace evenkeel {

namespace {

__extension__ using Wide = __int128;  // products of two loads

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

}  // namespace

void LeastLoaded::plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                       std::span<const std::int64_t> base_load) {
  require_step_input(counts, placement, base_load);
  reserve(counts.num_experts(), counts.num_ranks());
  if (stays_home(counts)) return keep_home(counts, placement, plan);
  begin(counts, placement, base_load);
  plan.begin(placement);
  for (const auto& [largest_share, expert] : order_.items()) {
    plan.begin_expert(expert);
    const auto homes = placement.homes(expert);
    for (std::size_t copy = 0; copy < homes.size(); ++copy)
      assign(copy_share(counts.load(expert), homes.size(), copy), homes[copy], plan);
  }
}

void LeastLoaded::reserve(int num_experts, int num_ranks) {
  order_.reserve(static_cast<std::size_t>(num_experts));
  committed_.resize(static_cast<std::size_t>(num_ranks));
}

bool LeastLoaded::stays_home(const Counts& counts) const {
  if (counts.num_ranks() == 1 || counts.total() < counts.num_ranks()) return true;
  const Wide largest = *std::ranges::max_element(counts.loads());
  return largest * counts.num_experts() * 1000 <
         Wide{options_.imbalance_threshold_thousandths} * counts.total();
}

// Capacity, what every rank has at home, and the order of experts (Algorithm 2, before its loop).
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
    order_.add(expert, copy_share(load, homes.size(), 0));
  }
  order_.sort();
}

// The three cases of Algorithm 2. The sum of given and pending work, all that a later decision sees, changes
// only by what leaves home.
void LeastLoaded::assign(std::int64_t share, RankId home, StepPlan& plan) {
  const std::int64_t room = capacity_ - (committed_[home] - share);
  const std::int64_t kept = std::clamp(room, std::int64_t{0}, share);
  if (kept > 0) plan.give(home, kept);
  committed_[home] -= share - kept;
  if (kept < share) spill(share - kept, home, plan);
}

// Algorithm 3. Its loop over ranks ends at the first: if a piece is too small on the rank with the most room,
// it is too small on all.
void LeastLoaded::spill(std::int64_t rest, RankId home, StepPlan& plan) {
  while (rest > 0) {
    const RankId rank = least_loaded_other(home);
    const std::int64_t room = capacity_ - committed_[rank];
    const bool room_for_piece = room > 0 && room >= options_.min_segment;
    const std::int64_t piece = room_for_piece ? std::min(rest, room) : rest;
    plan.give(rank, piece);
    committed_[rank] += piece;
    rest -= piece;
  }
}

RankId LeastLoaded::least_loaded_other(RankId home) const {
  RankId least(home == RankId(0) ? 1 : 0);
  for (RankId rank : indices<RankId>(committed_.size()))
    if (rank != home && committed_[rank] < committed_[least]) least = rank;
  return least;
}

}  // namespace evenkeel
