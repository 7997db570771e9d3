// How many copies each expert gets, so that the largest copy is as small as possible.
//
// Method      each further copy goes to the expert whose copies are largest at that point, by a heap.
// Cost        O((E + C) log E) for C copies beyond the first of each expert.
// Guarantee   no choice of counts has a smaller largest copy. An expert of load w needs ceil(w / x) copies
//             for each to be at most x, and no copy is given before x requires it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/pool/fixed_load.h"

namespace evenkeel::internal {

class CopyCounts {
 public:
  // Chooses `num_slots` copies in all, at least one and at most `most_copies` per expert. Among equally large
  // copies the lower expert id is split first. num_slots must be in loads.size() .. loads.size() *
  // most_copies.
  void choose(std::span<const FixedLoad> loads, int num_slots, int most_copies) {
    counts_.assign(loads.size(), 1);
    keys_.clear();
    for (std::size_t e = 0; e < loads.size(); ++e) keys_.push_back(key(loads, e));
    std::ranges::make_heap(keys_);
    for (auto further = num_slots - std::ssize(loads); further > 0; --further) {
      std::ranges::pop_heap(keys_);
      const auto e = static_cast<std::size_t>(index_of_key(keys_.back()));
      if (++counts_[e] < most_copies) {
        keys_.back() = key(loads, e);
        std::ranges::push_heap(keys_);
      } else {
        keys_.pop_back();
      }
    }
    list(loads);
  }
  // Lists the items for counts that the caller chose.
  void list_items(std::span<const FixedLoad> loads, std::span<const std::int32_t> counts) {
    counts_.assign(counts.begin(), counts.end());
    list(loads);
  }

  std::span<const std::int32_t> counts() const { return counts_; }
  // All copies, the largest first, equal ones by expert. Copies of one expert are adjacent.
  std::span<const FixedLoad> item_loads() const { return item_loads_; }
  std::span<const std::int32_t> item_experts() const { return item_experts_; }
  FixedLoad largest_copy() const { return item_loads_.empty() ? 0 : item_loads_.front(); }

 private:
  std::uint64_t key(std::span<const FixedLoad> loads, std::size_t expert) const {
    return descending_key(copy_load(loads[expert], counts_[expert]), static_cast<std::int32_t>(expert));
  }
  void list(std::span<const FixedLoad> loads) {
    keys_.clear();
    for (std::size_t e = 0; e < loads.size(); ++e) keys_.push_back(key(loads, e));
    std::ranges::sort(keys_, std::greater{});
    item_loads_.clear();
    item_experts_.clear();
    for (std::uint64_t key : keys_) {
      const std::int32_t expert = index_of_key(key);
      for (std::int32_t copy = 0; copy < counts_[static_cast<std::size_t>(expert)]; ++copy) {
        item_loads_.push_back(static_cast<FixedLoad>(key >> kKeyIndexBits));
        item_experts_.push_back(expert);
      }
    }
  }

  std::vector<std::int32_t> counts_;
  std::vector<FixedLoad> item_loads_;
  std::vector<std::int32_t> item_experts_;
  std::vector<std::uint64_t> keys_;  // keys of the experts, by the load of one copy
};

}  // namespace evenkeel::internal
