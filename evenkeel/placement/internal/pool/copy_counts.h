// How many copies each expert gets, so that the largest copy is as small as it can be.
//
// Method      each further copy goes to the expert whose copies are largest now. Only experts that have been
//             given one are kept in a heap; the others wait in order of load.
// Cost        O(E log E + C log C) for C copies beyond the first of each.
// Guarantee   the largest copy is the smallest that any choice of counts reaches: an expert of load w needs
//             ceil(w / x) copies for each to be at most x, and no copy is given before it is needed for that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/pool/fixed_load.h"

namespace evenkeel {

class CopyCounts {
 public:
  // `num_slots` copies in all, at least one and at most `most_copies` for each expert; equally large copies
  // are split in order of load, then of expert. num_slots is in loads.size() .. loads.size() * most_copies.
  void choose(std::span<const FixedLoad> loads, int num_slots, int most_copies);

  std::span<const std::int32_t> counts() const { return counts_; }
  // All copies, the largest first; those of one expert stand together. Equal ones by expert.
  std::span<const FixedLoad> item_loads() const { return item_loads_; }
  std::span<const std::int32_t> item_experts() const { return item_experts_; }
  FixedLoad largest_copy() const { return largest_copy_; }

  // The items for counts that the caller chose.
  void list_items(std::span<const FixedLoad> loads, std::span<const std::int32_t> counts);

 private:
  struct Split {  // an expert with its copies, ordered by what one of them bears
    FixedLoad copy = 0;
    std::int32_t expert = 0;
    bool operator<(const Split& other) const {
      return copy != other.copy ? copy < other.copy : expert > other.expert;
    }
  };

  void sort_experts(std::span<const FixedLoad> loads);
  void give_copies(std::span<const FixedLoad> loads, int further, int most_copies);
  void merge_items(std::span<const FixedLoad> loads);

  std::vector<std::int32_t> counts_;
  std::vector<FixedLoad> item_loads_;
  std::vector<std::int32_t> item_experts_;
  FixedLoad largest_copy_ = 0;
  std::vector<std::uint64_t> order_;  // descending keys of all experts
  std::vector<Split> split_;          // experts with more than one copy, while copies are given a heap
  std::vector<Split> complete_;       // those that may have no more
};

}  // namespace evenkeel
