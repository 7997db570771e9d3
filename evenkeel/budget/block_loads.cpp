#include "evenkeel/budget/block_loads.h"

#include <algorithm>
#include <utility>

#include "evenkeel/budget/least_budget.h"
#include "evenkeel/budget/shares.h"

namespace evenkeel {

void BlockLoads::read(const BlockTable& table, const LayerPlacement& placement,
                      std::span<const std::int64_t> tokens, int top_k) {
  table_ = table;
  placement_ = &placement;
  ranks_ = table.num_ranks();
  blocks_ = table.num_blocks();
  sizes_.num_ranks = ranks_;
  sizes_.num_experts = table.num_experts();
  sizes_.top_k = top_k;
  tokens_.assign(tokens.begin(), tokens.end());
  const auto experts = static_cast<std::size_t>(table.num_experts());
  const auto boundaries = static_cast<std::size_t>(blocks_) + 1;
  // Reserves for the most blocks of a step and for any plan, so that no later step allocates.
  constexpr std::size_t most_boundaries = kStepBlocks + 1;
  for (auto* is_summed : {&is_table_summed_, &is_summed_}) is_summed->reserve(most_boundaries);
  for (auto* sums : {&table_sums_, &sums_}) sums->reserve(most_boundaries * ranks_size());
  all_tokens_.reserve(most_boundaries);
  split_.reserve(experts);
  whole_.reserve(experts);
  at_home_.reserve(experts * ranks_size());
  split_sums_.reserve(most_boundaries * ranks_size() * experts);
  is_table_summed_.assign(boundaries, 0);
  table_sums_.resize(boundaries * ranks_size());
  sums_.resize(boundaries * ranks_size());
  all_tokens_.resize(boundaries);
}

// Sums that depend on the table alone, not on a plan.
void BlockLoads::sum_table(int block) const {
  Sums* const sums = table_sums_.data() + at(block);
  std::fill_n(sums, ranks_size(), Sums{});
  std::int64_t& all_tokens = all_tokens_[static_cast<std::size_t>(block)] = 0;
  is_table_summed_[static_cast<std::size_t>(block)] = 1;
  if (block == 0) return;
  for (RankId source : indices<RankId>(ranks_)) {
    const auto visited = table_->visitors(source, block - 1);
    const auto assigned = table_->home_assignments(source, block - 1);
    const auto chose = table_->home_choosers(source, block - 1);
    std::int64_t all_visited = 0;
    for (std::size_t rank = 0; rank < ranks_size(); ++rank) {
      sums[rank].positions += assigned[rank];
      sums[rank].whole_choosers += chose[rank];
      sums[rank].visitors += visited[rank];
      all_visited += visited[rank];
    }
    Sums& own = sums[source.offset()];
    own.assignments = table_->total(source, block - 1);
    own.whole_kept = assigned[source.offset()];
    own.own_choosers = chose[source.offset()];
    own.own_visitors = visited[source.offset()];
    own.leavers = all_visited - own.own_visitors;
    own.tokens = tokens_[source.offset()] * block / blocks_;
    all_tokens += own.tokens;
  }
}

void BlockLoads::follow(const StepPlan& plan) {
  begin_plan();
  sort_experts(plan);
  read_groups(plan.most_segments(), [&](const auto& take) {
    for (ExpertId expert : indices<ExpertId>(plan.num_experts()))
      for (const Segment& segment : plan.segments(expert)) take(segment.rank, segment.size());
  });
  split_sums_.resize(split_at(blocks_ + 1));
  segment_share_.resize(plan.most_segments());
}

void BlockLoads::stay_home(const Counts& counts) {
  begin_plan();
  read_groups(static_cast<std::size_t>(counts.num_experts()), [&](const auto& take) {
    for (ExpertId expert : indices<ExpertId>(counts.num_experts()))
      if (counts.load(expert) > 0) take(placement_->owner(expert), counts.load(expert));
  });
}

// Calls for_each_group(take) twice: first to count each rank's groups, so that they lie together, then to
// store their shares. for_each_group(take) calls take(rank, positions) for every group.
template <class ForEachGroup>
void BlockLoads::read_groups(std::size_t most, const ForEachGroup& for_each_group) {
  groups_.assign(ranks_size(), {});
  for_each_group([&](RankId rank, std::int64_t positions) {
    RankGroups& groups = groups_[rank.offset()];
    ++groups.end;
    groups.positions += positions;
  });
  std::size_t all = 0;
  for (RankGroups& groups : groups_) {
    groups.begin = all;
    all += std::exchange(groups.end, all);
  }
  group_shares_.reserve(most);
  group_shares_.resize(all);
  for_each_group([&](RankId rank, std::int64_t positions) {
    RankGroups& groups = groups_[rank.offset()];
    const double share = static_cast<double>(positions) / static_cast<double>(groups.positions);
    group_shares_[groups.end++] = share;
    groups.least = std::min(groups.least, share);
    groups.largest = std::max(groups.largest, share);
  });
}

void BlockLoads::begin_plan() {
  is_summed_.assign(static_cast<std::size_t>(blocks_) + 1, 0);
  split_.clear();
  segments_.clear();
  whole_.clear();
  at_home_.clear();
}

// Finds the experts that are not computed whole at an only home: those that the plan splits, and those that
// have several homes but are computed whole at one of them.
void BlockLoads::sort_experts(const StepPlan& plan) {
  segments_.reserve(plan.most_segments());
  const bool single_homes = placement_->has_single_homes();
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const auto segments = plan.segments(expert);
    // This is the case for most experts: computed whole at their only home.
    if (single_homes && segments.size() == 1 && segments.front().rank == placement_->owner(expert)) continue;
    if (plan.splits(expert, *placement_)) {
      split_.push_back({expert, segments_.size()});
      segments_.insert(segments_.end(), segments.begin(), segments.end());
    } else if (placement_->homes(expert).size() > 1 && !segments.empty()) {
      whole_.push_back({expert, segments.front().rank});
    }
  }
  for (RankId rank : indices<RankId>(ranks_))
    for (const Split& split : split_) at_home_.push_back(placement_->is_home(split.expert, rank) ? 1 : 0);
}

void BlockLoads::sum(int block) const {
  if (!is_table_summed_[static_cast<std::size_t>(block)]) sum_table(block);
  std::copy_n(table_sums_.data() + at(block), ranks_size(), sums_.data() + at(block));
  is_summed_[static_cast<std::size_t>(block)] = 1;
  if (block == 0) {
    std::fill_n(split_sums_.data(), ranks_size() * split_.size(), SplitSums{});
    return;
  }
  for (const Whole& whole : whole_) count_whole_at(whole.expert, whole.home, block);
  for (std::size_t split = 0; split < split_.size(); ++split) add_split(split, block);
}

// Counts all of an expert's assignments at the home that computes it.
void BlockLoads::count_whole_at(ExpertId expert, RankId home, int block) const {
  const auto chosen = [&](RankId rank) {
    return Chosen{table_->assignments(rank, block - 1)[expert.offset()],
                  table_->choosers(rank, block - 1)[expert.offset()]};
  };
  Chosen all;
  for (RankId source : indices<RankId>(ranks_)) all += chosen(source);
  sums_[at(block) + home.offset()].move(all, chosen(home), 1);
}

void BlockLoads::add_split(std::size_t split, int block) const {
  const ExpertId expert = split_[split].expert;
  const std::size_t end = split + 1 < split_.size() ? split_[split + 1].segments : segments_.size();
  const auto segments = std::span(segments_).subspan(split_[split].segments, end - split_[split].segments);
  const auto homes = placement_->homes(expert);
  const std::size_t stride = split_.size(), table_stride = table_->rank_stride();
  Sums* const sums = sums_.data() + at(block);
  SplitSums* const of_ranks = split_sums_.data() + split_at(block) + split;
  const std::int32_t* const assignments = &table_->assignments(RankId(0), block - 1)[expert.offset()];
  const std::int32_t* const choosers = &table_->choosers(RankId(0), block - 1)[expert.offset()];
  Chosen all;
  for (std::size_t rank = 0, ranks = ranks_size(); rank < ranks; ++rank) {
    const Chosen chosen{assignments[rank * table_stride], choosers[rank * table_stride]};
    of_ranks[rank * stride] = {chosen};
    all += chosen;
  }
  if (homes.size() == 1) {
    const std::size_t home = homes.front().offset();
    sums[home].move(all, of_ranks[home * stride].chosen, -1);
  }
  share_out(segments, all.assignments, segment_share_);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::size_t rank = segments[i].rank.offset();
    of_ranks[rank * stride].share += static_cast<std::int32_t>(segment_share_[i]);
    sums[rank].positions += segment_share_[i];
  }
}

PlanExperts BlockLoads::experts() const {
  PlanExperts experts{0, !split_.empty()};
  for (const RankGroups& groups : groups_)
    experts.of_rank = std::max(experts.of_rank, static_cast<std::int64_t>(groups.end - groups.begin));
  return experts;
}

// Of::any_part bounds every part of the blocks. In a part, a rank's share of a split expert may be smaller
// than the rank's own assignments to that expert, so that more of these go elsewhere. Also, fewer of the
// tokens that chose the expert twice may stay. The sum of positions here and elsewhere is at most that of all
// these blocks.
ChunkLoad BlockLoads::load(RankId rank, int begin, int end, Of of) const {
  const Sums& from = sums(begin)[rank.offset()];
  const Sums& to = sums(end)[rank.offset()];
  ChunkLoad load;
  load.tokens = to.tokens - from.tokens;
  load.assignments = to.assignments - from.assignments;
  load.assignments_kept = to.whole_kept - from.whole_kept;
  load.positions_here = to.positions - from.positions;
  load.groups = std::ssize(group_shares(rank).of_each);
  std::int64_t by_visitors = to.visitors - from.visitors;
  std::int64_t by_choosers = to.whole_choosers - from.whole_choosers;
  std::int64_t received_by_visitors = by_visitors - (to.own_visitors - from.own_visitors);
  std::int64_t received_by_choosers = by_choosers - (to.own_choosers - from.own_choosers);
  std::int64_t sent_on = 0;
  const SplitSums* const before = split_sums_.data() + split_at(begin) + rank.offset() * split_.size();
  const SplitSums* const after = split_sums_.data() + split_at(end) + rank.offset() * split_.size();
  for (std::size_t split = 0; split < split_.size(); ++split) {
    const SplitSums& a = before[split];
    const SplitSums& b = after[split];
    const std::int64_t own = b.chosen.assignments - a.chosen.assignments;
    const std::int64_t share = b.share - a.share;
    const std::int64_t kept = std::min(own, share);
    load.assignments_kept += kept;
    const bool these = of == Of::these;
    // A part may keep none of these assignments, which takes the most bytes.
    if (these) load.own_split += kept;
    if (!these || kept > 0) ++load.own_runs;
    sent_on += these ? own - kept : own;
    const std::int64_t choosers = b.chosen.choosers - a.chosen.choosers;
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
                                  load.tokens * std::min<std::int64_t>(sizes_.top_k, ranks_ - 1)});
  return load;
}

}  // namespace evenkeel
