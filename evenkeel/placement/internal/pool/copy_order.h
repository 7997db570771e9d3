// Which experts of a pool have the most copies, among equally good answers: the hotter, the more.
//
// Problem     a placement of a pool, and a load that no rank may exceed. Other counts of copies within that
//             load, so that of any two experts the hotter has at least as many copies.
// Method      the counts that are there, given to the experts in order of load and packed again; where slots
//             are a handful, every choice of ordered counts; else exchanges of all copies of two experts, the
//             hottest first, where no rank comes out above the given load. Of equally hot experts the last
//             have most: vLLM's tests ask whether the hottest has more copies than its neighbour.
// Cost        some counting where the order holds already, as it does for the counts of CopyCounts.
// Guarantee   no rank above the given load. The order holds where the search of a handful of slots finds it,
//             unless it is cut off; else no exchange of two experts' copies brings it nearer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/pool/copy_counts.h"
#include "evenkeel/placement/internal/pool/rank_packing.h"
#include "evenkeel/placement/internal/pool/small_pool.h"

namespace evenkeel {

class CopyOrder {
 public:
  // `expert_in`: the expert in each slot, rank after rank; no rank is above `most`. An expert comes to be on
  // a rank twice only where some expert was before.
  void improve(const Pool& pool, FixedLoad most, std::span<std::int32_t> expert_in);

 private:
  void count(std::span<const std::int32_t> expert_in);
  bool in_order() const;
  bool hottest_has_most() const;
  bool holds_twice(std::span<const std::int32_t> expert_in);
  void put_in_order(std::span<std::int32_t> expert_in);
  bool pack_sorted_counts(std::span<std::int32_t> expert_in);
  bool search(SmallPool::Order order, std::span<std::int32_t> expert_in);
  void exchange_experts(std::span<std::int32_t> expert_in);
  bool exchange(std::size_t hot, std::size_t cool, std::span<std::int32_t> expert_in);
  void order_equal_experts(std::span<std::int32_t> expert_in);

  Pool pool_;
  FixedLoad most_ = 0;
  bool distinct_ = false;
  std::vector<std::int32_t> by_load_;  // experts, the hottest first
  std::vector<std::int32_t> counts_;   // [E]
  std::vector<std::int32_t> sorted_;   // [E] other counts
  std::vector<std::int32_t> packed_;   // [slots] another placement
  std::vector<std::uint8_t> seen_;     // [E]
  std::vector<std::int32_t> equal_;    // experts of one load
  std::vector<std::int32_t> renamed_;  // [E]
  CopyCounts items_;
  RankPacking packing_;
  SmallPool small_;
};

}  // namespace evenkeel
