#include "evenkeel/plan/step_plan.h"

#include <algorithm>

#include "evenkeel/base/check.h"

namespace evenkeel {

void StepPlan::begin(const LayerPlacement& placement) {
  placement_ = &placement;
  // Enough segments for any plan of this library's planners. Each copy needs up to two: the part that stays
  // at home, and the last piece that moves away. Each rank needs one more, because every other piece fills up
  // a rank.
  most_segments_ = static_cast<std::size_t>(placement.num_ranks());
  for (RankId rank : indices<RankId>(placement.num_ranks()))
    most_segments_ += 2 * placement.natives(rank).size();
  segments_.reserve(most_segments_);
  transfers_.reserve(most_segments_);
  segments_.clear();
  transfers_.clear();
  first_.assign(static_cast<std::size_t>(placement.num_experts()), 0);
  count_.assign(static_cast<std::size_t>(placement.num_experts()), 0);
  rank_loads_.assign(static_cast<std::size_t>(placement.num_ranks()), 0);
  last_given_.assign(static_cast<std::size_t>(placement.num_ranks()), ExpertId(-1));
}

void StepPlan::begin_expert(ExpertId expert) {
  EVENKEEL_CHECK(count_[expert.offset()] == 0);
  current_ = expert;
  first_[expert.offset()] = segments_.size();
}

void StepPlan::give(RankId rank, std::int64_t count) {
  EVENKEEL_CHECK(count > 0);
  const auto earlier = segments(current_);
  const std::int64_t begin = earlier.empty() ? 0 : earlier.back().end;
  const bool first_here = last_given_[rank.offset()] != current_;
  last_given_[rank.offset()] = current_;
  if (first_here && !placement_->is_home(current_, rank))
    transfers_.push_back({current_, placement_->owner(current_), rank});
  segments_.push_back({rank, begin, begin + count});
  ++count_[current_.offset()];
  rank_loads_[rank.offset()] += count;
}

bool operator==(const StepPlan& a, const StepPlan& b) {
  if (a.num_experts() != b.num_experts() || a.transfers_ != b.transfers_ || a.rank_loads_ != b.rank_loads_)
    return false;
  for (ExpertId e : indices<ExpertId>(a.num_experts()))
    if (!std::ranges::equal(a.segments(e), b.segments(e))) return false;
  return true;
}

}  // namespace evenkeel
