// The homes of experts as slots: every copy of an expert is a slot of its rank, with its share of the
// expert's load.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/balance/internal/step_input.h"
#include "evenkeel/base/index.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

using SlotId = Index<struct SlotTag>;

// Slots are numbered by rank, within a rank by expert. Reusable: a shape seen before allocates nothing.
class HomeSlots {
 public:
  struct Slot {
    ExpertId expert;
    RankId rank;
    std::int64_t share = 0;  // assignments dealt to this copy
    std::int64_t least = 0;  // the fewest that may leave for a rank without a copy
  };

  // An expert's assignments are dealt evenly over its copies. A piece on a rank without a copy has at least
  // min_segment assignments, or all that the expert has.
  void reset(const Counts& counts, const LayerPlacement& placement, std::int64_t min_segment) {
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

  std::size_t size() const { return slots_.size(); }
  const Slot& operator[](SlotId slot) const { return slots_[slot.offset()]; }
  Slot& operator[](SlotId slot) { return slots_[slot.offset()]; }
  std::span<const Slot> all() const { return slots_; }

  // The slots of a rank are begin(rank) <= slot < end(rank).
  SlotId begin(RankId rank) const { return begin_[rank.offset()]; }
  SlotId end(RankId rank) const { return begin_[rank.offset() + 1]; }
  // The slots of an expert, its owner's first.
  std::span<const SlotId> copies(ExpertId expert) const {
    return group_of(copies_, copies_begin_, expert.offset());
  }

 private:
  std::vector<Slot> slots_;
  std::vector<SlotId> begin_;              // [P + 1]
  std::vector<SlotId> next_;               // [P], while filling
  std::vector<std::size_t> copies_begin_;  // [E + 1] into copies_
  std::vector<SlotId> copies_;
};

}  // namespace evenkeel::internal
