#include "evenkeel/memory/block_loads.h"

#include <algorithm>

#include "evenkeel/memory/shares.h"

namespace evenkeel {

void BlockLoads::build(const BlockTable& table, const StepPlan& plan, const LayerPlacement& placement,
                       std::span<const std::int64_t> tokens, int top_k) {
  ranks_ = table.num_ranks();
  blocks_ = table.num_blocks();
  top_k_ = top_k;
  tokens_.assign(tokens.begin(), tokens.end());
  sort_experts(plan, placement);
  const auto boundaries = static_cast<std::size_t>(blocks_) + 1;
  sums_.assign(boundaries * ranks_size(), {});
  split_sums_.assign(boundaries * split_.size() * ranks_size(), {});
  segment_share_.resize(plan.most_segments());
  for (int block = 0; block < blocks_; ++block) {
    add_whole(table, block);
    add_split(table, plan, block);
  }
}

void BlockLoads::sort_experts(const StepPlan& plan, const LayerPlacement& placement) {
  whole_at_.assign(static_cast<std::size_t>(plan.num_experts()), -1);
  split_.clear();
  at_home_.clear();
  groups_.assign(ranks_size(), 0);
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const auto segments = plan.segments(expert);
    for (const Segment& segment : segments) ++groups_[segment.rank.offset()];
    if (segments.empty()) continue;
    if (segments.size() == 1 && placement.is_home(expert, segments.front().rank)) {
      whole_at_[expert.offset()] = segments.front().rank.value();
      continue;
    }
    split_.push_back(expert);
    for (RankId rank : indices<RankId>(ranks_)) at_home_.push_back(placement.is_home(expert, rank) ? 1 : 0);
  }
}

void BlockLoads::add_whole(const BlockTable& table, int block) {
  for (RankId rank : indices<RankId>(ranks_)) sums(rank, block + 1) = sums(rank, block);
  for (RankId source : indices<RankId>(ranks_)) {
    Sums& own = sums(source, block + 1);
    const auto assigned = table.assignments(source, block);
    const auto chose = table.choosers(source, block);
    for (std::size_t e = 0; e < assigned.size(); ++e) {
      if (assigned[e] == 0) continue;
      own.assignments += assigned[e];
      if (whole_at_[e] < 0) continue;
      Sums& there = sums(RankId(whole_at_[e]), block + 1);
      there.positions += assigned[e];
      there.whole_choosers += chose[e];
      if (whole_at_[e] == source.value()) own.whole_kept += assigned[e];
    }
    const auto visited = table.visitors(source, block);
    for (RankId rank : indices<RankId>(ranks_)) {
      sums(rank, block + 1).visitors += visited[rank.offset()];
      if (rank != source) own.leavers += visited[rank.offset()];
    }
  }
}

void BlockLoads::add_split(const BlockTable& table, const StepPlan& plan, int block) {
  for (std::size_t split = 0; split < split_.size(); ++split) {
    const std::size_t e = split_[split].offset();
    std::int64_t all = 0;
    for (RankId rank : indices<RankId>(ranks_)) {
      const SplitSums& before = split_sums_[split_at(split, rank, block)];
      SplitSums& after = split_sums_[split_at(split, rank, block + 1)];
      after.assignments = before.assignments + table.assignments(rank, block)[e];
      after.choosers = before.choosers + table.choosers(rank, block)[e];
      all += after.assignments;
    }
    const auto segments = plan.segments(split_[split]);
    share_out(segments, all, segment_share_);
    for (std::size_t i = 0; i < segments.size(); ++i)
      split_sums_[split_at(split, segments[i].rank, block + 1)].share += segment_share_[i];
  }
}

std::int64_t BlockLoads::first_token(RankId rank, int block) const {
  return tokens_[rank.offset()] * block / blocks_;
}

ChunkLoad BlockLoads::load(RankId rank, int begin, int end) const {
  return load(rank, begin, end, Of::these);
}

ChunkLoad BlockLoads::bound(RankId rank, int begin, int end) const {
  ChunkLoad load = this->load(rank, begin, end, Of::any_part);
  load.slack_bytes = kSpreadBytes;
  return load;
}

// In a part, less may be computed here than the rank has itself, so that more goes elsewhere, and of tokens
// that chose an expert twice fewer may stay. Positions here and elsewhere together are never more.
ChunkLoad BlockLoads::load(RankId rank, int begin, int end, Of of) const {
  const Sums& from = sums(rank, begin);
  const Sums& to = sums(rank, end);
  ChunkLoad load;
  load.tokens = first_token(rank, end) - first_token(rank, begin);
  load.assignments = to.assignments - from.assignments;
  load.assignments_kept = to.whole_kept - from.whole_kept;
  load.positions_here = to.positions - from.positions;
  load.groups = groups_[rank.offset()];
  std::int64_t by_visitors = to.visitors - from.visitors;
  std::int64_t by_choosers = to.whole_choosers - from.whole_choosers;
  std::int64_t sent_on = 0;
  for (std::size_t split = 0; split < split_.size(); ++split) {
    const SplitSums& a = split_sums_[split_at(split, rank, begin)];
    const SplitSums& b = split_sums_[split_at(split, rank, end)];
    const std::int64_t own = b.assignments - a.assignments;
    const std::int64_t share = b.share - a.share;
    const std::int64_t kept = std::min(own, share);
    load.assignments_kept += kept;
    load.positions_here += share;
    const bool these = of == Of::these;
    sent_on += these ? own - kept : own;
    const std::int64_t rows = these ? std::min(kept, b.choosers - a.choosers) + (share - kept) : share;
    by_choosers += rows;
    if (at_home_[split * ranks_size() + rank.offset()] == 0) by_visitors += rows;
  }
  std::int64_t all_tokens = 0;
  for (RankId other : indices<RankId>(ranks_))
    all_tokens += first_token(other, end) - first_token(other, begin);
  load.rows_here = std::min({by_visitors, by_choosers, all_tokens});
  const std::int64_t leaving =
      of == Of::these ? load.positions_elsewhere() : load.assignments - (to.whole_kept - from.whole_kept);
  load.rows_elsewhere = std::min({leaving, to.leavers - from.leavers + sent_on,
                                  load.tokens * std::min<std::int64_t>(top_k_, ranks_ - 1)});
  return load;
}

}  // namespace evenkeel
