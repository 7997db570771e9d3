// Positions, assignments and rows that each rank sends and receives in any run of blocks, under a step plan,
// before anything is sent.
//
// Positions and assignments are exact. Rows are bounded from above: a token that goes to a rank for several
// experts sends one row there. How many tokens do so is known for experts at home, not for those lent out.
// Method   Sums over blocks from the left, as if each expert with one home were computed there. These come
//          from the table alone, for any number of plans. A plan moves the few experts that it treats
//          otherwise. A sum is made when it is first asked for, since cutting chunks asks for few boundaries
//          of many.
// Cost     For each boundary between blocks that is asked about, O(P^2) once a table, and O(P) once a plan
//          for each expert that it splits or that has several homes. For a question, O(split experts). Reuses
//          its memory. One thread.
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
  // `tokens` by rank; fewer than 2^31 assignments in all. The memory that the table and the placement view
  // must stay as long as anything is asked.
  void read(const BlockTable& table, const LayerPlacement& placement, std::span<const std::int64_t> tokens,
            int top_k);
  // Answers are of this plan from now on, as it is now.
  void follow(const StepPlan& plan);
  // Of plain EP, each expert having one home; `counts` are those that the table adds up to.
  void stay_home(const Counts& counts);

  int num_ranks() const { return ranks_; }
  int num_blocks() const { return blocks_; }
  // Blocks [begin, end) of one rank.
  ChunkLoad load(RankId rank, int begin, int end) const { return load(rank, begin, end, Of::these); }
  // A load whose bytes no part of these blocks, run as a chunk, exceeds.
  ChunkLoad bound(RankId rank, int begin, int end) const { return load(rank, begin, end, Of::any_part); }
  // take(rank, the positions computed there), of blocks [begin, end), for each rank.
  template <class Take>
  void for_each_positions(int begin, int end, const Take& take) const {
    const Sums* const from = sums(begin);
    const Sums* const to = sums(end);
    for (RankId rank : indices<RankId>(ranks_))
      take(rank, to[rank.offset()].positions - from[rank.offset()].positions);
  }
  // The segments that a rank computes in the whole step, each as its share of the rank's positions. These are
  // its experts, but that one with several homes may come twice.
  struct GroupShares {
    std::span<const double> of_each;
    double least = 0, largest = 0;
  };
  GroupShares group_shares(RankId rank) const {
    const RankGroups& groups = groups_[rank.offset()];
    return {std::span(group_shares_).subspan(groups.begin, groups.end - groups.begin), groups.least,
            groups.largest};
  }
  // Of the plan. O(P).
  PlanExperts experts() const;
  // largest_load() under the plan. O(P).
  ChunkLoad largest(std::int64_t tokens) const { return largest_load(sizes_, tokens, experts()); }

 private:
  enum class Of { these, any_part };
  ChunkLoad load(RankId rank, int begin, int end, Of of) const;

  // Of an expert, by one rank or several, summed over the blocks before one.
  struct Chosen {
    std::int32_t assignments = 0;
    std::int32_t choosers = 0;

    Chosen& operator+=(const Chosen& more) {
      assignments += more.assignments;
      choosers += more.choosers;
      return *this;
    }
  };
  // Of one rank, summed over the blocks before one.
  struct Sums {
    std::int64_t tokens = 0;
    std::int64_t assignments = 0;     // of its tokens
    std::int64_t positions = 0;       // computed there
    std::int64_t whole_kept = 0;      // of its own, to experts whole there
    std::int64_t whole_choosers = 0;  // tokens of all ranks, once for each expert whole there
    std::int64_t own_choosers = 0;    // of these, its own
    std::int64_t visitors = 0;        // tokens of all ranks that chose an expert at home there
    std::int64_t own_visitors = 0;    // of these, its own
    std::int64_t leavers = 0;         // its own tokens, once for each other rank with a home that they chose

    // The rows of an expert, chosen by all ranks and by this one, come here, or, -1 times, go from here.
    void move(const Chosen& all, const Chosen& own, int times) {
      positions += times * all.assignments;
      whole_choosers += times * all.choosers;
      whole_kept += times * own.assignments;
      own_choosers += times * own.choosers;
    }
  };
  // Sums for an expert that several ranks, or a foreign one, compute.
  struct SplitSums {
    Chosen chosen;
    std::int32_t share = 0;  // positions at the rank
  };

  // Of all ranks; makes them.
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
  void bring(ExpertId expert, RankId home, int block) const;
  void add_split(std::size_t split, int block) const;

  // An expert that is split, and where its segments begin.
  struct Split {
    ExpertId expert;
    std::size_t segments = 0;
  };
  // Where a rank's group shares are, and between which they lie.
  struct RankGroups {
    std::size_t begin = 0, end = 0;
    std::int64_t positions = 0;  // of all of them
    double least = 1, largest = 0;
  };
  // One of an expert's homes computes all of it.
  struct Whole {
    ExpertId expert;
    RankId home;
  };

  int ranks_ = 0;
  int blocks_ = 0;
  ChunkShape sizes_;  // ranks, experts and top-k alone
  std::optional<BlockTable> table_;
  const LayerPlacement* placement_ = nullptr;
  std::vector<std::int64_t> tokens_;  // by rank
  std::vector<Split> split_;
  std::vector<Segment> segments_;      // of these, one expert behind the other
  std::vector<Whole> whole_;           // where experts have several homes
  std::vector<std::uint8_t> at_home_;  // [ranks][split]
  std::vector<RankGroups> groups_;     // by rank
  std::vector<double> group_shares_;   // rank after rank

  // Before a plan and of one, and which there are; by boundary between blocks.
  mutable std::vector<std::uint8_t> is_table_summed_, is_summed_;  // [blocks + 1]
  mutable std::vector<Sums> table_sums_, sums_;                    // [blocks + 1][ranks]
  mutable std::vector<std::int64_t> all_tokens_;                   // [blocks + 1], of all ranks
  mutable std::vector<SplitSums> split_sums_;                      // [blocks + 1][ranks][split]
  mutable std::vector<std::int64_t> segment_share_;
};

}  // namespace evenkeel
