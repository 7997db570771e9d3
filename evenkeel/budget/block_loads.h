// Counts the positions, assignments and rows that each rank sends and receives in any run of blocks under a
// step plan, before anything is sent.
//
// Positions and assignments are exact. Rows are bounded from above: a token that goes to a rank for several
// experts sends one row there. How many tokens do so is known for experts at home, not for borrowed ones.
// Method   Prefix sums over blocks, as if each expert with one home were computed there. They depend on the
//          table alone and serve any number of plans. A plan then corrects them for the few experts that it
//          places otherwise. Each sum is computed on first use, because cutting chunks needs few of the many
//          block boundaries.
// Cost     For each block boundary that is used: O(P^2) for each table; and for each plan, O(P) for each
//          expert that the plan splits or that has several homes. A query takes O(split experts). Reuses its
//          memory. For one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/budget/block_table.h"
#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

class BlockLoads {
 public:
  // `tokens` by rank; fewer than 2^31 assignments in all. The table's memory and `placement` must outlive all
  // queries.
  void read(const BlockTable& table, const LayerPlacement& placement, std::span<const std::int64_t> tokens,
            int top_k);
  // Queries answer for this plan from now on; later changes of `plan` have no effect.
  void follow(const StepPlan& plan);
  // Queries answer for plain EP from now on; every expert must have one home. `counts` are the table's sums.
  void stay_home(const Counts& counts);

  int num_ranks() const { return ranks_; }
  int num_blocks() const { return blocks_; }
  // The load of one rank in blocks [begin, end).
  ChunkLoad load(RankId rank, int begin, int end) const { return load(rank, begin, end, Of::these); }
  // An upper bound: no part of these blocks, run as a chunk, takes more bytes than this load.
  ChunkLoad bound(RankId rank, int begin, int end) const { return load(rank, begin, end, Of::any_part); }
  // Calls take(rank, the positions computed there in blocks [begin, end)) for each rank.
  template <class Take>
  void for_each_positions(int begin, int end, const Take& take) const {
    const Sums* const from = sums(begin);
    const Sums* const to = sums(end);
    for (RankId rank : indices<RankId>(ranks_))
      take(rank, to[rank.offset()].positions - from[rank.offset()].positions);
  }
  // The segments that a rank computes in the whole step, each as a share of the rank's positions. There is
  // one for each expert, but an expert with several homes may come twice.
  struct GroupShares {
    std::span<const double> of_each;
    double least = 0, largest = 0;
  };
  GroupShares group_shares(RankId rank) const {
    const RankGroups& groups = groups_[rank.offset()];
    return {std::span(group_shares_).subspan(groups.begin, groups.end - groups.begin), groups.least,
            groups.largest};
  }
  // What largest_load() must know of the plan. O(P).
  PlanExperts experts() const;
  // largest_load() under the plan. O(P).
  ChunkLoad largest(std::int64_t tokens) const { return largest_load(sizes_, tokens, experts()); }

 private:
  enum class Of { these, any_part };
  ChunkLoad load(RankId rank, int begin, int end, Of of) const;

  // Choices of one expert by one or several ranks, summed over the blocks before a boundary.
  struct Chosen {
    std::int32_t assignments = 0;
    std::int32_t choosers = 0;

    Chosen& operator+=(const Chosen& more) {
      assignments += more.assignments;
      choosers += more.choosers;
      return *this;
    }
  };
  // One rank's sums over the blocks before a boundary. An expert is whole at a rank that computes all of it.
  struct Sums {
    std::int64_t tokens = 0;
    std::int64_t assignments = 0;     // of its tokens
    std::int64_t positions = 0;       // computed here
    std::int64_t whole_kept = 0;      // its own assignments to experts whole here
    std::int64_t whole_choosers = 0;  // tokens of all ranks, once for each expert whole here
    std::int64_t own_choosers = 0;    // its own part of whole_choosers
    std::int64_t visitors = 0;        // tokens of all ranks that chose an expert at home here
    std::int64_t own_visitors = 0;    // its own part of visitors
    std::int64_t leavers = 0;  // its own tokens, once for each other rank whose native experts they chose

    // Adds (`times` 1) or removes (`times` -1) an expert here. `all` are all ranks' choices of it, `own` this
    // rank's.
    void move(const Chosen& all, const Chosen& own, int times) {
      positions += times * all.assignments;
      whole_choosers += times * all.choosers;
      whole_kept += times * own.assignments;
      own_choosers += times * own.choosers;
    }
  };
  // One rank's sums for an expert that is split over ranks or computed away from its homes.
  struct SplitSums {
    Chosen chosen;
    std::int32_t share = 0;  // positions at the rank
  };

  // The sums of all ranks over the blocks before `block`, computed on first use.
  const Sums* sums(int block) const {
    if (!is_summed_[static_cast<std::size_t>(block)]) sum(block);
    return sums_.data() + at(block);
  }
  std::size_t at(int block) const { return static_cast<std::size_t>(block) * ranks_size(); }
  std::size_t split_at(int block) const { return at(block) * split_.size(); }
  std::size_t ranks_size() const { return static_cast<std::size_t>(ranks_); }
  void begin_plan();
  void sort_experts(const StepPlan& plan);
  template <class ForEachGroup>
  void read_groups(std::size_t most, const ForEachGroup& for_each_group);
  void sum_table(int block) const;
  void sum(int block) const;
  void count_whole_at(ExpertId expert, RankId home, int block) const;
  void add_split(std::size_t split, int block) const;

  // An expert that is split, and where its segments begin in segments_.
  struct Split {
    ExpertId expert;
    std::size_t segments = 0;
  };
  // Where a rank's group shares are in group_shares_, and the least and largest of them.
  struct RankGroups {
    std::size_t begin = 0, end = 0;
    std::int64_t positions = 0;  // of all its groups
    double least = 1, largest = 0;
  };
  // An expert with several homes, and the home that computes all of it.
  struct Whole {
    ExpertId expert;
    RankId home;
  };

  int ranks_ = 0;
  int blocks_ = 0;
  ChunkShape sizes_;  // only ranks, experts and top-k are set
  std::optional<BlockTable> table_;
  const LayerPlacement* placement_ = nullptr;
  std::vector<std::int64_t> tokens_;  // by rank
  std::vector<Split> split_;
  std::vector<Segment> segments_;      // those of split_, one expert after the other
  std::vector<Whole> whole_;           // used if experts have several homes
  std::vector<std::uint8_t> at_home_;  // [ranks][split]
  std::vector<RankGroups> groups_;     // by rank
  std::vector<double> group_shares_;   // rank after rank

  // Sums by block boundary, without a plan (table_) and under the plan, and flags for those already computed.
  mutable std::vector<std::uint8_t> is_table_summed_, is_summed_;  // [blocks + 1]
  mutable std::vector<Sums> table_sums_, sums_;                    // [blocks + 1][ranks]
  mutable std::vector<std::int64_t> all_tokens_;                   // [blocks + 1], of all ranks
  mutable std::vector<SplitSums> split_sums_;                      // [blocks + 1][ranks][split]
  mutable std::vector<std::int64_t> segment_share_;
};

}  // namespace evenkeel
