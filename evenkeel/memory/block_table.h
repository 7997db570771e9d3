// What all ranks know of a step before it is planned: how the tokens of small blocks are routed.
//
// Blocks   Every rank cuts its tokens, in order, into the same number of blocks of about the same size.
// Chunks
//          are made of whole blocks, so that their bytes are known before anything is sent.
// Bytes    num_ranks * num_blocks * (2 E + P) integers of 32 bits.
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
    return std::int64_t{num_ranks} * num_blocks * (2 * std::int64_t{num_experts} + num_ranks);
  }

  int num_ranks() const { return ranks_; }
  int num_experts() const { return experts_; }
  int num_blocks() const { return blocks_; }

  // The numbers of one rank.
  std::span<std::int32_t> part(RankId rank) const {
    const std::size_t size = block_size() * static_cast<std::size_t>(blocks_);
    return numbers_.subspan(rank.offset() * size, size);
  }
  // Of a block's tokens on a rank: assignments to each expert; tokens that chose each expert, once or more
  // often; tokens that chose an expert that is at home on each rank.
  std::span<std::int32_t> assignments(RankId rank, int block) const {
    return piece(rank, block, 0, experts_);
  }
  std::span<std::int32_t> choosers(RankId rank, int block) const {
    return piece(rank, block, experts_, experts_);
  }
  std::span<std::int32_t> visitors(RankId rank, int block) const {
    return piece(rank, block, 2 * experts_, ranks_);
  }

  // Fills one rank's part from its tokens' choices, [tokens * k]; ids outside 0..E-1 are no expert.
  void fill(RankId rank, std::span<const std::int32_t> experts, int k, const LayerPlacement& placement) const;

  // The counts of the whole step.
  void sum(Counts& counts) const;

 private:
  std::size_t block_size() const {
    return 2 * static_cast<std::size_t>(experts_) + static_cast<std::size_t>(ranks_);
  }
  std::span<std::int32_t> piece(RankId rank, int block, int begin, int size) const {
    return part(rank).subspan(
        static_cast<std::size_t>(block) * block_size() + static_cast<std::size_t>(begin),
        static_cast<std::size_t>(size));
  }

  std::span<std::int32_t> numbers_;
  int ranks_;
  int experts_;
  int blocks_;
};

}  // namespace evenkeel
