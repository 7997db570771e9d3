// The table of a step that all ranks share before it is planned: how the tokens of small blocks are routed.
//
// Blocks   Every rank cuts its tokens, in order, into the same number of blocks of about the same size.
//          Chunks are made of whole blocks, so that their bytes are known before anything is sent.
// Numbers  Each is a sum over all blocks up to one, and over experts where it can be. The rank that sends
//          them has a Pth of the work; a rank that reads them all has little left to do.
// Bytes    num_ranks * num_blocks * (2 E + 3 P + 1) integers of 32 bits.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/base/index.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

// A view of such a table; ranks fill their own part and gather the others'.
class BlockTable {
 public:
  BlockTable(std::span<std::int32_t> numbers, int num_ranks, int num_experts, int num_blocks)
      : numbers_(numbers), ranks_(num_ranks), experts_(num_experts), blocks_(num_blocks) {}

  static std::int64_t count(int num_ranks, int num_experts, int num_blocks) {
    return num_ranks * num_blocks * block_size(num_experts, num_ranks);
  }

  int num_ranks() const { return ranks_; }
  int num_experts() const { return experts_; }
  int num_blocks() const { return blocks_; }

  // The numbers of one rank.
  std::span<std::int32_t> part(RankId rank) const {
    return numbers_.subspan(rank.offset() * rank_stride(), rank_stride());
  }
  // Of a rank's tokens, from the first to those of a block: assignments to each expert; tokens that chose
  // each expert, once or more often.
  std::span<std::int32_t> assignments(RankId rank, int block) const {
    return piece(rank, block, 0, experts_);
  }
  std::span<std::int32_t> choosers(RankId rank, int block) const {
    return piece(rank, block, experts_, experts_);
  }
  // By rank: tokens that chose an expert at home there; the two above, summed over experts at home there
  // alone.
  std::span<std::int32_t> visitors(RankId rank, int block) const {
    return piece(rank, block, 2 * experts_, ranks_);
  }
  std::span<std::int32_t> home_assignments(RankId rank, int block) const {
    return piece(rank, block, 2 * experts_ + ranks_, ranks_);
  }
  std::span<std::int32_t> home_choosers(RankId rank, int block) const {
    return piece(rank, block, 2 * experts_ + 2 * ranks_, ranks_);
  }
  // Assignments to any expert.
  std::int32_t& total(RankId rank, int block) const {
    return piece(rank, block, 2 * experts_ + 3 * ranks_, 1).front();
  }

  // From a number of one rank to the same of the next.
  std::size_t rank_stride() const { return block_size() * static_cast<std::size_t>(blocks_); }

  // Fills one rank's part from its tokens' choices, [tokens * k]; ids outside 0..E-1 are no expert.
  void fill(RankId rank, std::span<const std::int32_t> experts, int k, const LayerPlacement& placement) const;

  // Fills all ranks' parts from counts [P][blocks][E]. How many of them are of the same tokens is not known,
  // and taken to be none.
  void fill_counts(std::span<const std::int64_t> counts, const LayerPlacement& placement) const;
  // Fills a table of one block from blocks [begin, end) of another.
  void fill_run(const BlockTable& from, int begin, int end) const;

  // The counts of the whole step.
  void sum(Counts& counts) const;

 private:
  static std::int64_t block_size(std::int64_t experts, std::int64_t ranks) {
    return 2 * experts + 3 * ranks + 1;
  }
  std::size_t block_size() const { return static_cast<std::size_t>(block_size(experts_, ranks_)); }
  std::span<std::int32_t> of_block(RankId rank, int block) const {
    return part(rank).subspan(static_cast<std::size_t>(block) * block_size(), block_size());
  }
  std::span<std::int32_t> piece(RankId rank, int block, int begin, int size) const {
    return of_block(rank, block).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
  }

  void add_token(RankId rank, int block, std::span<const std::int32_t> chosen,
                 const LayerPlacement& placement) const;

  std::span<std::int32_t> numbers_;
  int ranks_;
  int experts_;
  int blocks_;
};

}  // namespace evenkeel
