#include "evenkeel/budget/shares.h"

#include "evenkeel/base/check.h"

namespace evenkeel {

namespace {

// n * size / behind, rounded down; at most `size`, because n <= behind. Uses 128 bits, which are slow, only
// where loads are large.
std::int64_t proportion(std::int64_t n, std::int64_t size, std::int64_t behind) {
  if (size == behind) return n;
  constexpr std::int64_t kSmall = std::int64_t{1} << 31;
  if (behind < kSmall) return n * size / behind;
  return static_cast<std::int64_t>(static_cast<__int128>(n) * size / behind);
}

}  // namespace

void share_out(std::span<const Segment> segments, std::int64_t n, std::span<std::int64_t> shares) {
  std::int64_t behind = segments.empty() ? 0 : segments.back().end;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::int64_t size = segments[i].size();
    shares[i] = proportion(n, size, behind);
    n -= shares[i];
    behind -= size;
  }
  EVENKEEL_CHECK(n == 0);
}

void ChunkShares::begin(const StepPlan& plan) {
  plan_ = &plan;
  done_.assign(static_cast<std::size_t>(plan.num_experts()), 0);
  before_.resize(plan.most_segments());
  after_.resize(plan.most_segments());
}

void ChunkShares::next(const Counts& counts, const LayerPlacement& placement, StepPlan& chunk) {
  chunk.begin(placement);
  for (ExpertId expert : indices<ExpertId>(plan_->num_experts())) {
    const std::int64_t load = counts.load(expert);
    if (load == 0) continue;
    const auto segments = plan_->segments(expert);
    EVENKEEL_CHECK(!segments.empty());
    chunk.begin_expert(expert);
    if (segments.size() == 1) {
      chunk.give(segments.front().rank, load);
      done_[expert.offset()] += load;
      continue;
    }
    share_out(segments, done_[expert.offset()], before_);
    done_[expert.offset()] += load;
    share_out(segments, done_[expert.offset()], after_);
    for (std::size_t i = 0; i < segments.size(); ++i)
      if (after_[i] > before_[i]) chunk.give(segments[i].rank, after_[i] - before_[i]);
  }
}

}  // namespace evenkeel
