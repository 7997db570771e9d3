// What each rank sends and receives in any run of blocks, under a step plan, before anything is sent.
//
// Positions and assignments are exact. Rows are bounded from above: a token that goes to a rank for several
// experts sends one row there, and how many do is known for experts at home, not for those lent out.
// Method   Sums over blocks from the left, as if each expert with one home were computed there: of the table
//          alone, for any number of plans. A plan moves the few experts with which it does something else.
// Cost     O(P^2 B) to read a table, O(P B) for a plan and each expert that it splits or that has several
//          homes, O(split experts) a question. Reuses its memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/memory/block_table.h"
#include "evenkeel/memory/chunk_bytes.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

class BlockLoads {
 public:
  // `tokens` by rank; fewer than 2^31 assignments in all. What the table and the placement view must stay as
  // long as plans are followed.
  void read(const BlockTable& table, const LayerPlacement& placement, std::span<const std::int64_t> tokens,
            int top_k);
  // Answers are of this plan from now on.
  void follow(const StepPlan& plan);

  int num_ranks() const { return ranks_; }
  int num_blocks() const { return blocks_; }
  // Blocks [begin, end) of one rank.
  ChunkLoad load(RankId rank, int begin, int end) const;
  // Of these alone, the positions computed there.
  std::int64_t positions(RankId rank, int begin, int end) const {
    return sums(rank, end).positions - sums(rank, begin).positions;
  }
  // Experts of which a rank computes some.
  std::int64_t groups(RankId rank) const { return groups_[rank.offset()]; }
  // What no part of these blocks, run as a chunk, exceeds in bytes.
  ChunkLoad bound(RankId rank, int begin, int end) const;

 private:
  enum class Of { these, any_part };
  ChunkLoad load(RankId rank, int begin, int end, Of of) const;

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
  };
  // The same of an expert that several ranks, or a foreign one, compute.
  struct SplitSums {
    std::int32_t assignments = 0;
    std::int32_t choosers = 0;
    std::int32_t share = 0;  // positions at the rank
  };

  // Of an expert, by all ranks up to a block.
  struct Chosen {
    std::int64_t assignments = 0;
    std::int64_t choosers = 0;
  };

  const Sums& sums(RankId rank, int block) const { return sums_[at(rank, block)]; }
  Sums& sums(RankId rank, int block) { return sums_[at(rank, block)]; }
  std::size_t at(RankId rank, int block) const {
    return static_cast<std::size_t>(block) * ranks_size() + rank.offset();
  }
  std::size_t split_at(std::size_t split, RankId rank, int block) const {
    return at(rank, block) * split_.size() + split;
  }
  std::size_t ranks_size() const { return static_cast<std::size_t>(ranks_); }
  void add_block(int block, std::span<const std::int64_t> tokens);
  void sort_experts(const StepPlan& plan);
  void bring(ExpertId expert, RankId home);
  Chosen of_all_ranks(ExpertId expert, int block) const;
  void move(ExpertId expert, RankId home, int block, const Chosen& all, int times);
  void add_split(const StepPlan& plan, std::size_t split);

  int ranks_ = 0;
  int blocks_ = 0;
  int top_k_ = 0;
  std::optional<BlockTable> table_;
  const LayerPlacement* placement_ = nullptr;
  std::vector<Sums> table_sums_, sums_;   // [blocks + 1][ranks], before a plan and of one
  std::vector<std::int64_t> all_tokens_;  // [blocks + 1], of all ranks
  std::vector<ExpertId> split_;
  std::vector<SplitSums> split_sums_;  // [blocks + 1][ranks][split]
  std::vector<std::uint8_t> at_home_;  // [ranks][split]
  std::vector<std::int64_t> groups_;   // by rank: experts that it computes some of
  std::vector<std::int64_t> segment_share_;
};

}  // namespace evenkeel
