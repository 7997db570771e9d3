// What each rank sends and receives in any run of blocks, under a step plan, before anything is sent.
//
// Positions and assignments are exact. Rows are bounded from above: a token that goes to a rank for several
// experts sends one row there, and how many do is known for experts at home, not for those lent out.
// Method   Sums over blocks from the left, of everything that the plan leaves at one rank; the few experts
//          that it splits are looked at one by one.
// Cost     O(P B E) to build, O(split experts) a question. Reuses its memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/memory/block_table.h"
#include "evenkeel/memory/chunk_bytes.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

class BlockLoads {
 public:
  // `tokens` by rank; fewer than 2^31 assignments in all. The arguments may go after.
  void build(const BlockTable& table, const StepPlan& plan, const LayerPlacement& placement,
             std::span<const std::int64_t> tokens, int top_k);

  int num_ranks() const { return ranks_; }
  int num_blocks() const { return blocks_; }
  // Blocks [begin, end) of one rank.
  ChunkLoad load(RankId rank, int begin, int end) const;
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

  const Sums& sums(RankId rank, int block) const {
    return sums_[static_cast<std::size_t>(block) * ranks_size() + rank.offset()];
  }
  Sums& sums(RankId rank, int block) {
    return sums_[static_cast<std::size_t>(block) * ranks_size() + rank.offset()];
  }
  std::size_t split_at(std::size_t split, RankId rank, int block) const {
    return (static_cast<std::size_t>(block) * ranks_size() + rank.offset()) * split_.size() + split;
  }
  std::size_t ranks_size() const { return static_cast<std::size_t>(ranks_); }
  void sort_experts(const StepPlan& plan, const LayerPlacement& placement);
  void add_whole(const BlockTable& table, int block);
  void add_split(const BlockTable& table, const StepPlan& plan, int block);

  int ranks_ = 0;
  int blocks_ = 0;
  int top_k_ = 0;
  std::vector<Sums> sums_;                // [blocks + 1][ranks]
  std::vector<std::int64_t> all_tokens_;  // [blocks + 1], of all ranks
  // Experts of which a home computes all, by that home; and where each rank's begin.
  std::vector<ExpertId> whole_;
  std::vector<std::size_t> whole_begin_;
  std::vector<std::int32_t> assigned_, chose_;  // of one block and all ranks, by expert
  std::vector<ExpertId> split_;
  std::vector<SplitSums> split_sums_;  // [blocks + 1][ranks][split]
  std::vector<std::uint8_t> at_home_;  // [ranks][split]
  std::vector<std::int64_t> groups_;   // by rank: experts that it computes some of
  std::vector<std::int64_t> segment_share_;
};

}  // namespace evenkeel
