#include "evenkeel/placement/internal/pool/level_pool.h"

#include <algorithm>
#include <numeric>

#include "evenkeel/placement/internal/pool/pool_solver.h"

namespace evenkeel::internal {

namespace {

constexpr int kMostVariedSlots = 4000;  // over all tries

}  // namespace

bool LevelPool::solve(const LevelSearch::Pool& pool, float target, const Deadline& deadline) {
  peaks_.assign(pool.loads.size() / pool.blocks, 0);
  for (std::size_t i = 0; i < pool.loads.size(); ++i) {
    double& peak = peaks_[i / pool.blocks];
    peak = std::max(peak, static_cast<double>(pool.loads[i].largest()));
  }
  const auto slots = std::reduce(pool.capacities.begin(), pool.capacities.end(), std::int64_t{0});
  if (std::ranges::max(pool.capacities) > std::ssize(peaks_) || slots < std::ssize(peaks_)) return false;
  fixed_.resize(peaks_.size());
  to_fixed(peaks_, fixed_scale(std::reduce(peaks_.begin(), peaks_.end(), 0.0)), fixed_);
  counts_.choose(fixed_, static_cast<int>(slots), static_cast<int>(pool.capacities.size()));
  expert_in_.clear();
  copies_.assign(counts_.counts().begin(), counts_.counts().end());
  if (!search(pool, copies_, target, deadline)) return false;
  if (slots < PoolSolver::kFewSlots) vary_copies(pool, target, deadline);
  return true;
}

// Keeps what is lighter than the best so far. False where the copies found no distinct ranks.
bool LevelPool::search(const LevelSearch::Pool& pool, std::span<const std::int32_t> copies, float target,
                       const Deadline& deadline) {
  if (!search_.fill(pool, copies)) return false;
  search_.level(target, deadline);
  if (!expert_in_.empty() && search_.heaviest_load() >= heaviest_) return false;
  heaviest_ = search_.heaviest_load();
  expert_in_.assign(search_.expert_in().begin(), search_.expert_in().end());
  return true;
}

void LevelPool::vary_copies(const LevelSearch::Pool& pool, float target, const Deadline& deadline) {
  int tries = kMostVariedSlots / static_cast<int>(expert_in_.size());
  for (std::size_t giver = 0; giver < copies_.size(); ++giver)
    for (std::size_t taker = 0; taker < copies_.size(); ++taker) {
      if (heaviest_ <= target || tries <= 0 || deadline.passed()) return;
      if (giver == taker || copies_[giver] == 1 || copies_[taker] == std::ssize(pool.capacities)) continue;
      if (peaks_[giver] >= static_cast<double>(heaviest_) * (copies_[giver] - 1)) break;
      --tries;
      --copies_[giver];
      ++copies_[taker];
      if (search(pool, copies_, target, deadline)) continue;
      ++copies_[giver];
      --copies_[taker];
    }
}

}  // namespace evenkeel::internal
