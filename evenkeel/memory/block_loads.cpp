#include "evenkeel/memory/block_loads.h"

#include <algorithm>

#include "evenkeel/memory/shares.h"

namespace evenkeel {

void BlockLoads::build(const BlockTable& table, const StepPlan& plan, const LayerPlacement& placement,
                       std::span<const std::int64_t> tokens, int top_k) {
  ranks_ = table.num_ranks();
  blocks_ = table.num_blocks();
  top_k_ = top_k;
  sort_experts(plan, placement);
  const auto boundaries = static_cast<std::size_t>(blocks_) + 1;
  sums_.assign(boundaries * ranks_size(), {});
  split_sums_.assign(boundaries * split_.size() * ranks_size(), {});
  all_tokens_.assign(boundaries, 0);
  segment_share_.resize(plan.most_segments());
  for (int block = 0; block < blocks_; ++block) {
    add_whole(table, block);
    add_split(table, plan, block);
    for (RankId rank : indices<RankId>(ranks_)) {
      sums(rank, block + 1).tokens = tokens[rank.offset()] * (block + 1) / blocks_;
      all_tokens_[static_cast<std::size_t>(block) + 1] += sums(rank, block + 1).tokens;
    }
  }
}

void BlockLoads::sort_experts(const StepPlan& plan, const LayerPlacement& placement) {
  whole_.reserve(static_cast<std::size_t>(plan.num_experts()));
  split_.reserve(whole_.capacity());
  at_home_.reserve(whole_.capacity() * ranks_size());
  whole_.clear();
  whole_begin_.assign(1, 0);
  split_.clear();
  at_home_.clear();
  groups_.assign(ranks_size(), 0);
  const auto is_whole = [&](ExpertId expert) {
    return !plan.segments(expert).empty() && !plan.splits(expert, placement);
  };
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    for (const Segment& segment : plan.segments(expert)) ++groups_[segment.rank.offset()];
    if (plan.splits(expert, placement)) split_.push_back(expert);
  }
  for (RankId rank : indices<RankId>(ranks_)) {
    for (ExpertId expert : placement.natives(rank))
      if (is_whole(expert) && plan.segments(expert).front().rank == rank) whole_.push_back(expert);
    whole_begin_.push_back(whole_.size());
    for (ExpertId expert : split_) at_home_.push_back(placement.is_home(expert, rank) ? 1 : 0);
  }
}

void BlockLoads::add_whole(const BlockTable& table, int block) {
  assigned_.assign(static_cast<std::size_t>(table.num_experts()), 0);
  chose_.assign(assigned_.size(), 0);
  for (RankId rank : indices<RankId>(ranks_)) sums(rank, block + 1) = sums(rank, block);
  const auto whole_of = [&](RankId rank) {
    return std::span(whole_).subspan(whole_begin_[rank.offset()],
                                     whole_begin_[rank.offset() + 1] - whole_begin_[rank.offset()]);
  };
  for (RankId source : indices<RankId>(ranks_)) {
    Sums& own = sums(source, block + 1);
    const auto assigned = table.assignments(source, block);
    const auto chose = table.choosers(source, block);
    std::int32_t all = 0;
    for (std::size_t e = 0; e < assigned.size(); ++e) {
      all += assigned[e];
      assigned_[e] += assigned[e];
      chose_[e] += chose[e];
    }
    own.assignments += all;
    for (ExpertId expert : whole_of(source)) {
      own.whole_kept += assigned[expert.offset()];
      own.own_choosers += chose[expert.offset()];
    }
    const auto visited = table.visitors(source, block);
    for (RankId rank : indices<RankId>(ranks_)) {
      sums(rank, block + 1).visitors += visited[rank.offset()];
      (rank == source ? own.own_visitors : own.leavers) += visited[rank.offset()];
    }
  }
  for (RankId rank : indices<RankId>(ranks_)) {
    Sums& there = sums(rank, block + 1);
    for (ExpertId expert : whole_of(rank)) {
      there.positions += assigned_[expert.offset()];
      there.whole_choosers += chose_[expert.offset()];
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
      split_sums_[split_at(split, segments[i].rank, block + 1)].share +=
          static_cast<std::int32_t>(segment_share_[i]);
  }
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
  load.tokens = to.tokens - from.tokens;
  load.assignments = to.assignments - from.assignments;
  load.assignments_kept = to.whole_kept - from.whole_kept;
  load.positions_here = to.positions - from.positions;
  load.groups = groups_[rank.offset()];
  std::int64_t by_visitors = to.visitors - from.visitors;
  std::int64_t by_choosers = to.whole_choosers - from.whole_choosers;
  std::int64_t received_by_visitors = by_visitors - (to.own_visitors - from.own_visitors);
  std::int64_t received_by_choosers = by_choosers - (to.own_choosers - from.own_choosers);
  std::int64_t sent_on = 0;
  const SplitSums* const before = split_sums_.data() + split_at(0, rank, begin);
  const SplitSums* const after = split_sums_.data() + split_at(0, rank, end);
  for (std::size_t split = 0; split < split_.size(); ++split) {
    const SplitSums& a = before[split];
    const SplitSums& b = after[split];
    const std::int64_t own = b.assignments - a.assignments;
    const std::int64_t share = b.share - a.share;
    const std::int64_t kept = std::min(own, share);
    load.assignments_kept += kept;
    load.positions_here += share;
    const bool these = of == Of::these;
    // A part may have none of them.
    if (these) load.own_split += kept;
    if (!these || kept > 0) ++load.own_runs;
    sent_on += these ? own - kept : own;
    const std::int64_t choosers = b.choosers - a.choosers;
    const std::int64_t rows = these ? std::min(kept, choosers) + (share - kept) : share;
    const std::int64_t received = these ? share - kept : share;
    by_choosers += rows;
    received_by_choosers += received;
    if (at_home_[rank.offset() * split_.size() + split] != 0) continue;
    by_visitors += rows;
    received_by_visitors += received;
  }
  const std::int64_t all_tokens =
      all_tokens_[static_cast<std::size_t>(end)] - all_tokens_[static_cast<std::size_t>(begin)];
  load.rows_here = std::min({by_visitors, by_choosers, all_tokens});
  load.rows_received = std::min({received_by_visitors, received_by_choosers, all_tokens - load.tokens});
  const std::int64_t leaving =
      of == Of::these ? load.positions_elsewhere() : load.assignments - (to.whole_kept - from.whole_kept);
  load.rows_elsewhere = std::min({leaving, to.leavers - from.leavers + sent_on,
                                  load.tokens * std::min<std::int64_t>(top_k_, ranks_ - 1)});
  return load;
}

}  // namespace evenkeel
