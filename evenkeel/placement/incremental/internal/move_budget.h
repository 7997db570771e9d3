// Moves dealt to layers: which of the states that each layer offers is taken, so that the sum of their values
// is low and all moves together are within the budget.
//
// Method      along the lower convex hulls of the layers' offers, the steepest segment first; then, with what
//             is left, single offers by the most they gain.
// Guarantee   within the budget; the sum is the least there is for the number of moves spent on whole
//             segments.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

struct MoveOffer {
  int moves = 0;
  double value = 0;
  std::size_t state = 0;  // the layer's own name for it
};

// Each layer's offers begin with 0 moves. Returns, for each layer, the index of the offer taken. After the
// deadline a layer's hull is not looked for further: its last offer stands for the rest.
std::vector<std::size_t> spend_moves(std::span<const std::vector<MoveOffer>> offers, int max_moves,
                                     const Deadline& deadline);

// Sorted by moves; only those lower than all with as many moves or fewer.
void keep_useful(std::vector<MoveOffer>& offers);

}  // namespace evenkeel::internal
