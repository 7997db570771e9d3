#include "evenkeel/balance/home_slots.h"

#include <algorithm>

#include "evenkeel/balance/step_input.h"

namespace evenkeel {

void HomeSlots::reset(const Counts& counts, const LayerPlacement& placement, std::int64_t min_segment) {
  begin_.clear();
  std::size_t count = 0;
  for (RankId rank : indices<RankId>(placement.num_ranks())) {
    begin_.emplace_back(count);
    count += placement.natives(rank).size();
  }
  begin_.emplace_back(count);
  next_.assign(begin_.begin(), begin_.end() - 1);
  slots_.resize(count);
  copies_.resize(count);
  copies_begin_.assign(1, 0);
  copies_begin_.reserve(static_cast<std::size_t>(counts.num_experts()) + 1);
  std::size_t at = 0;
  for (ExpertId expert : indices<ExpertId>(counts.num_experts())) {
    const std::int64_t load = counts.load(expert);
    const auto homes = placement.homes(expert);
    for (std::size_t copy = 0; copy < homes.size(); ++copy) {
      SlotId& next = next_[homes[copy].offset()];
      slots_[next.offset()] = {expert, homes[copy], copy_share(load, homes.size(), copy),
                               std::min(load, min_segment)};
      copies_[at++] = next;
      ++next;
    }
    copies_begin_.push_back(at);
  }
}

}  // namespace evenkeel
