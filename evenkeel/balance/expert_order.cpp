#include "evenkeel/balance/expert_order.h"

#include <algorithm>
#include <array>
#include <utility>

namespace evenkeel {

namespace {

// Descending, so that large bytes come first.
void sort_by_byte(std::span<const ExpertOrder::Item> from, std::span<ExpertOrder::Item> to, int shift) {
  std::array<std::uint32_t, 256> next{};
  const auto slot = [shift](const ExpertOrder::Item& item) {
    return 255 - ((static_cast<std::uint64_t>(item.load) >> shift) & 255);
  };
  for (const auto& item : from) ++next[slot(item)];
  std::uint32_t begin = 0;
  for (auto& n : next) begin += std::exchange(n, begin);
  for (const auto& item : from) to[next[slot(item)]++] = item;
}

// Few experts are cheaper to insert one by one; also stable.
void insert_sorted(std::span<ExpertOrder::Item> items) {
  for (std::size_t i = 1; i < items.size(); ++i) {
    const ExpertOrder::Item item = items[i];
    std::size_t at = i;
    for (; at > 0 && items[at - 1].load < item.load; --at) items[at] = items[at - 1];
    items[at] = item;
  }
}

}  // namespace

void ExpertOrder::reserve(std::size_t experts) {
  items_.reserve(experts);
  other_.reserve(experts);
}

void ExpertOrder::sort() {
  if (items_.size() <= 24) return insert_sorted(items_);
  std::uint64_t bits = 0;
  for (const Item& item : items_) bits |= static_cast<std::uint64_t>(item.load);
  other_.resize(items_.size());
  for (int shift = 0; shift < 64 && (bits >> shift) != 0; shift += 8) {
    sort_by_byte(items_, other_, shift);
    items_.swap(other_);
  }
}

}  // namespace evenkeel
