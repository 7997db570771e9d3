#include "evenkeel/plan/deal.h"

namespace evenkeel {

void Deal::make(const Counts& counts, const StepPlan& plan, RankId me) {
  EVENKEEL_CHECK(counts.has_sources());
  const auto ranks = static_cast<std::size_t>(counts.num_ranks());
  me_ = me;
  reserve(plan);
  piece_begin_.clear();
  pieces_.clear();
  experts_here_.clear();
  arrivals_.clear();
  sent_.assign(ranks, 0);
  received_.assign(ranks, 0);
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    piece_begin_.push_back(pieces_.size());
    const auto segments = plan.segments(expert);
    if (segments.size() == 1)
      deal_whole(counts, expert, segments.front().rank);
    else if (!segments.empty())
      deal_split(counts, segments, expert);
  }
  piece_begin_.push_back(pieces_.size());
}

// Reserves memory for the deal of any plan. An expert's pieces are its segments and the part that stays here.
void Deal::reserve(const StepPlan& plan) {
  const auto experts = static_cast<std::size_t>(plan.num_experts());
  piece_begin_.reserve(experts + 1);
  pieces_.reserve(experts + plan.most_segments());
  experts_here_.reserve(experts);
  const auto ranks = static_cast<std::size_t>(plan.num_ranks());
  arrivals_.reserve(experts * ranks);
  split_.reserve(ranks);
  sent_.reserve(ranks);
  received_.reserve(ranks);
}

void Deal::move(RankId from, RankId to, std::int64_t count) {
  if (count == 0) return;
  if (from == me_) {
    pieces_.push_back({to, count, sent_[to.offset()]});
    sent_[to.offset()] += count;
  }
  if (to == me_) {
    current_arrivals_[from.offset()] += static_cast<std::int32_t>(count);
    received_[from.offset()] += count;
  }
}

std::span<std::int32_t> Deal::open_arrivals(ExpertId expert) {
  experts_here_.push_back(expert);
  arrivals_.resize(arrivals_.size() + sent_.size(), 0);
  return std::span(arrivals_).last(sent_.size());
}

void Deal::deal_whole(const Counts& counts, ExpertId expert, RankId home) {
  if (home != me_) return move(me_, home, counts.at(me_, expert));
  current_arrivals_ = open_arrivals(expert);
  for (RankId source : indices<RankId>(counts.num_ranks())) move(source, home, counts.at(source, expert));
}

void Deal::deal_split(const Counts& counts, std::span<const Segment> segments, ExpertId expert) {
  split_.begin(segments, sent_.size());
  if (split_.quota(me_) > 0) current_arrivals_ = open_arrivals(expert);
  split_.deal([&](RankId source) { return counts.at(source, expert); },
              [&](RankId from, RankId to, std::int64_t count) { move(from, to, count); });
}

}  // namespace evenkeel
