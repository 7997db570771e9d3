// Steps that relieve the heaviest rank of one layer, the one that gains most for each move first.
//
// A step counts for what it leaves of the ranks it touches: in no recording may one of them be as heavy as
// the heaviest was.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "evenkeel/placement/incremental/internal/layer_homes.h"

namespace evenkeel::internal {

// Homes given and taken away, up to two of each.
struct ReliefStep {
  struct Home {
    std::size_t rank = 0;
    std::size_t expert = 0;
  };
  std::vector<Home> removed;
  std::vector<Home> added;

  void apply(LayerHomes& homes) const;  // adds first, so that no expert is ever without a home
};

// The best step that costs at most `most_moves` more, if there is one. node_of_rank, free_slots [P].
std::optional<ReliefStep> best_relief(const LayerHomes& homes, std::span<const std::int32_t> node_of_rank,
                                      std::span<const std::int32_t> free_slots, int most_moves);

}  // namespace evenkeel::internal
