#include "evenkeel/memory/block_loads.h"

#include <algorithm>

#include "evenkeel/memory/shares.h"

namespace evenkeel {

void BlockLoads::read(const BlockTable& table, const LayerPlacement& placement,
                      std::span<const std::int64_t> tokens, int top_k) {
  table_ = table;
  placement_ = &placement;
  ranks_ = table.num_ranks();
  blocks_ = table.num_blocks();
  top_k_ = top_k;
  const auto boundaries = static_cast<std::size_t>(blocks_) + 1;
  table_sums_.assign(boundaries * ranks_size(), {});
  all_tokens_.assign(boundaries, 0);
  for (int block = 0; block < blocks_; ++block) add_block(block, tokens);
}

void BlockLoads::add_block(int block, std::span<const std::int64_t> tokens) {
  Sums* const after = table_sums_.data() + at(RankId(0), block + 1);
  for (RankId source : indices<RankId>(ranks_)) {
    Sums& own = after[source.offset()];
    const auto visited = table_->visitors(source, block);
    const auto assigned = table_->home_assignments(source, block);
    const auto chose = table_->home_choosers(source, block);
    std::int64_t all_visited = 0;
    for (std::size_t rank = 0; rank < ranks_size(); ++rank) {
      after[rank].positions += assigned[rank];
      after[rank].whole_choosers += chose[rank];
      after[rank].visitors += visited[rank];
      all_visited += visited[rank];
    }
    own.assignments = table_->total(source, block);
    own.whole_kept = assigned[source.offset()];
    own.own_choosers = chose[source.offset()];
    own.own_visitors = visited[source.offset()];
    own.leavers = all_visited - own.own_visitors;
    own.tokens = tokens[source.offset()] * (block + 1) / blocks_;
    all_tokens_[static_cast<std::size_t>(block) + 1] += own.tokens;
  }
}

void BlockLoads::follow(const StepPlan& plan) {
  sums_ = table_sums_;
  sort_experts(plan);
  split_sums_.assign((static_cast<std::size_t>(blocks_) + 1) * split_.size() * ranks_size(), {});
  segment_share_.resize(plan.most_segments());
  for (std::size_t split = 0; split < split_.size(); ++split) add_split(plan, split);
}

// Experts that the plan splits go from their home; of several homes, the one that computes all gets the
// expert.
void BlockLoads::sort_experts(const StepPlan& plan) {
  split_.reserve(static_cast<std::size_t>(plan.num_experts()));
  at_home_.reserve(split_.capacity() * ranks_size());
  split_.clear();
  at_home_.clear();
  groups_.assign(ranks_size(), 0);
  const bool single_homes = placement_->has_single_homes();
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const auto segments = plan.segments(expert);
    for (const Segment& segment : segments) ++groups_[segment.rank.offset()];
    // Most experts: whole at their only home.
    if (single_homes && segments.size() == 1 && segments.front().rank == placement_->owner(expert)) continue;
    if (plan.splits(expert, *placement_)) {
      split_.push_back(expert);
    } else if (placement_->homes(expert).size() > 1 && !segments.empty()) {
      bring(expert, segments.front().rank);
    }
  }
  for (RankId rank : indices<RankId>(ranks_))
    for (ExpertId expert : split_) at_home_.push_back(placement_->is_home(expert, rank) ? 1 : 0);
}

// All of an expert's rows come to one of its homes.
void BlockLoads::bring(ExpertId expert, RankId home) {
  for (int block = 0; block < blocks_; ++block) move(expert, home, block, of_all_ranks(expert, block), 1);
}

BlockLoads::Chosen BlockLoads::of_all_ranks(ExpertId expert, int block) const {
  Chosen all;
  for (RankId source : indices<RankId>(ranks_)) {
    all.assignments += table_->assignments(source, block)[expert.offset()];
    all.choosers += table_->choosers(source, block)[expert.offset()];
  }
  return all;
}

// The rows of an expert up to a block come to a home, or, -1 times, go from it.
void BlockLoads::move(ExpertId expert, RankId home, int block, const Chosen& all, int times) {
  Sums& there = sums(home, block + 1);
  there.positions += times * all.assignments;
  there.whole_choosers += times * all.choosers;
  there.whole_kept += times * table_->assignments(home, block)[expert.offset()];
  there.own_choosers += times * table_->choosers(home, block)[expert.offset()];
}

void BlockLoads::add_split(const StepPlan& plan, std::size_t split) {
  const ExpertId expert = split_[split];
  const auto homes = placement_->homes(expert);
  const auto segments = plan.segments(expert);
  for (int block = 0; block < blocks_; ++block) {
    SplitSums* const after = split_sums_.data() + split_at(split, RankId(0), block + 1);
    Chosen all;
    for (RankId rank : indices<RankId>(ranks_)) {
      SplitSums& of_rank = after[rank.offset() * split_.size()];
      all.assignments += of_rank.assignments = table_->assignments(rank, block)[expert.offset()];
      all.choosers += of_rank.choosers = table_->choosers(rank, block)[expert.offset()];
    }
    if (homes.size() == 1) move(expert, homes.front(), block, all, -1);
    share_out(segments, all.assignments, segment_share_);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const RankId rank = segments[i].rank;
      after[rank.offset() * split_.size()].share += static_cast<std::int32_t>(segment_share_[i]);
      sums(rank, block + 1).positions += segment_share_[i];
    }
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
  load.positions_here = positions(rank, begin, end);
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
