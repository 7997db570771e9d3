// The homes of a layer's experts as flat arrays, for planners on a device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/cuda/step_view.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel::cuda {

class PlacementTables {
 public:
  explicit PlacementTables(const LayerPlacement& placement) {
    homes_.num_experts = placement.num_experts();
    homes_.num_ranks = placement.num_ranks();
    for (RankId rank : indices<RankId>(homes_.num_ranks))
      homes_.num_slots += static_cast<int>(placement.natives(rank).size());
    integers_.resize(static_cast<std::size_t>(placement_integers(homes_)));
    fill(placement);
  }

  // All arrays in one block, for copying to a device.
  std::span<const std::int32_t> integers() const { return integers_; }
  // Views of the arrays, in this object's memory or in a copy of integers().
  PlacementView view() const { return view_at(integers_.data()); }
  PlacementView view_at(const std::int32_t* copy) const { return placement_at(homes_, copy); }

 private:
  void fill(const LayerPlacement& placement) {
    const PlacementView view = this->view();
    const auto at = [this](const std::int32_t* array, int i) -> std::int32_t& {
      return integers_[static_cast<std::size_t>(array - integers_.data() + i)];
    };
    int slot = 0;
    std::vector<std::vector<std::int32_t>> slots(static_cast<std::size_t>(homes_.num_experts));
    for (RankId rank : indices<RankId>(homes_.num_ranks)) {
      at(view.slot_begin, rank.value()) = slot;
      for (ExpertId expert : placement.natives(rank)) {
        at(view.slot_expert, slot) = expert.value();
        at(view.slot_rank, slot) = rank.value();
        slots[expert.offset()].push_back(slot++);
      }
    }
    at(view.slot_begin, homes_.num_ranks) = slot;
    int begin = 0;
    for (ExpertId expert : indices<ExpertId>(homes_.num_experts)) {
      at(view.copies_begin, expert.value()) = begin;
      const auto homes = placement.homes(expert);
      for (std::size_t copy = 0; copy < homes.size(); ++copy)
        for (const std::int32_t candidate : slots[expert.offset()])
          if (view.slot_rank[candidate] == homes[copy].value()) {
            at(view.copies, begin++) = candidate;
            at(view.slot_copy, candidate) = static_cast<std::int32_t>(copy);
          }
    }
    at(view.copies_begin, homes_.num_experts) = begin;
  }

  PlacementView homes_;  // only its sizes are set
  std::vector<std::int32_t> integers_;
};

}  // namespace evenkeel::cuda
