// The routing of a step, summed over small blocks of tokens. All ranks share this table before the step is
// planned.
//
// Blocks   Every rank cuts its tokens, in order, into the same number of blocks of about the same size.
//          Chunks are made of whole blocks, so that their bytes are known before anything is sent.
// Numbers  Each is a prefix sum over blocks, and a sum over experts where possible. Each rank computes its
//          own part, a Pth of the work, so that reading all parts is cheap.
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
  // Both count over a rank's tokens up to the end of a block, for each expert: assignments() counts the
  // assignments to it, choosers() the tokens that chose it at least once.
  std::span<std::int32_t> assignments(RankId rank, int block) const {
    return piece(rank, block, 0, experts_);
  }
  std::span<std::int32_t> choosers(RankId rank, int block) const {
    return piece(rank, block, experts_, experts_);
  }
  // Over the same tokens, for each home rank: visitors() counts the tokens that chose an expert at home
  // there. home_assignments() and home_choosers() are the sums of assignments() and choosers() over the
  // experts whose only home is that rank.
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

  // The distance from a number of one rank to the same number of the next rank.
  std::size_t rank_stride() const { return block_size() * static_cast<std::size_t>(blocks_); }

  // Fills one rank's part from its tokens' choices, [tokens * k]; ids outside 0..E-1 are no expert.
  void fill(RankId rank, std::span<const std::int32_t> experts, int k, const LayerPlacement& placement) const;

  // Fills all ranks' parts from counts [P][blocks][E], as if no two assignments were of the same token.
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
