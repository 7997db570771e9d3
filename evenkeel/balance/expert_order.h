// The order in which planners take experts: by decreasing load, equal loads by ascending id.
//
// Method      A radix sort, stable, one byte of the load a pass, as many passes as the largest load has
// bytes. Cost        O(E B) for B bytes; 128 experts of loads below 2^24 take well under a microsecond. No
//             allocation after the first call of a size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/base/index.h"

namespace evenkeel {

class ExpertOrder {
 public:
  void clear() { items_.clear(); }
  void reserve(std::size_t experts);
  // Experts are added by ascending id.
  void add(ExpertId expert, std::int64_t load) { items_.push_back({load, expert}); }
  void sort();

  struct Item {
    std::int64_t load;
    ExpertId expert;
  };
  std::span<const Item> items() const { return items_; }

 private:
  std::vector<Item> items_;
  std::vector<Item> other_;
};

}  // namespace evenkeel
