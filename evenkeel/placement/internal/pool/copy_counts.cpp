#include "evenkeel/placement/internal/pool/copy_counts.h"

#include <algorithm>
#include <functional>

namespace evenkeel {

void CopyCounts::choose(std::span<const FixedLoad> loads, int num_slots, int most_copies) {
  sort_experts(loads);
  counts_.assign(loads.size(), 1);
  split_.clear();
  give_copies(loads, num_slots - static_cast<int>(loads.size()), most_copies);
  merge_items(loads);
}

void CopyCounts::list_items(std::span<const FixedLoad> loads, std::span<const std::int32_t> counts) {
  sort_experts(loads);
  counts_.assign(counts.begin(), counts.end());
  split_.clear();
  for (std::size_t e = 0; e < loads.size(); ++e)
    if (counts_[e] > 1) split_.push_back({copy_load(loads[e], counts_[e]), static_cast<std::int32_t>(e)});
  merge_items(loads);
}

void CopyCounts::sort_experts(std::span<const FixedLoad> loads) {
  order_.resize(loads.size());
  for (std::size_t e = 0; e < loads.size(); ++e)
    order_[e] = descending_key(loads[e], static_cast<std::int32_t>(e));
  std::sort(order_.begin(), order_.end(), std::greater<>());
}

void CopyCounts::give_copies(std::span<const FixedLoad> loads, int further, int most_copies) {
  std::size_t whole = 0;  // the largest expert that has one copy is order_[whole]
  complete_.clear();
  for (; further > 0; --further) {
    const std::int32_t next = whole < order_.size() && most_copies > 1 ? index_of_key(order_[whole]) : -1;
    const bool take_whole =
        next >= 0 && (split_.empty() || split_.front() < Split{loads[static_cast<std::size_t>(next)], next});
    if (take_whole) {
      ++whole;
      split_.push_back({0, next});
    } else {
      std::pop_heap(split_.begin(), split_.end());
    }
    Split& changed = split_.back();
    const auto e = static_cast<std::size_t>(changed.expert);
    changed.copy = copy_load(loads[e], ++counts_[e]);
    if (counts_[e] < most_copies) {
      std::push_heap(split_.begin(), split_.end());
    } else {
      complete_.push_back(changed);
      split_.pop_back();
    }
  }
  split_.insert(split_.end(), complete_.begin(), complete_.end());
}

void CopyCounts::merge_items(std::span<const FixedLoad> loads) {
  std::ranges::sort(split_, [](const Split& a, const Split& b) { return b < a; });
  item_loads_.clear();
  item_experts_.clear();
  auto split = split_.begin();
  const auto list = [&](FixedLoad load, std::int32_t expert) {
    item_loads_.insert(item_loads_.end(), static_cast<std::size_t>(counts_[static_cast<std::size_t>(expert)]),
                       load);
    item_experts_.insert(item_experts_.end(),
                         static_cast<std::size_t>(counts_[static_cast<std::size_t>(expert)]), expert);
  };
  for (std::uint64_t key : order_) {
    const std::int32_t expert = index_of_key(key);
    if (counts_[static_cast<std::size_t>(expert)] > 1) continue;
    const Split whole{loads[static_cast<std::size_t>(expert)], expert};
    for (; split != split_.end() && whole < *split; ++split) list(split->copy, split->expert);
    list(whole.copy, expert);
  }
  for (; split != split_.end(); ++split) list(split->copy, split->expert);
  largest_copy_ = item_loads_.empty() ? 0 : item_loads_.front();
}

}  // namespace evenkeel
