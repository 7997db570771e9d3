// Steps that relieve the heaviest rank of one layer, the largest gain per move first.
//
// A step is judged by the ranks it touches: in no recording may one of them become as heavy as the heaviest
// rank was.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "evenkeel/placement/incremental/internal/layer_homes.h"

namespace evenkeel::internal {

// Homes added and removed, up to two of each.
struct ReliefStep {
  struct Home {
    std::size_t rank = 0;
    std::size_t expert = 0;
  };
  std::vector<Home> removed;
  std::vector<Home> added;

  void apply(LayerHomes& homes) const;  // adds first, so that no expert is ever without a home
};

// The best step with at most `most_moves` further moves, if there is one. node_of_rank and free_slots are
// [P].
std::optional<ReliefStep> best_relief(const LayerHomes& homes, std::span<const std::int32_t> node_of_rank,
                                      std::span<const std::int32_t> free_slots, int most_moves);

}  // namespace evenkeel::internal
