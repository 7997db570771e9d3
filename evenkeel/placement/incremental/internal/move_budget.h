// Moves dealt to layers: which of the states that each layer offers is taken, so that the sum of their values
// is low and all moves together are within the budget.
//
// Method      along the lower convex hulls of the layers' offers, the steepest segment first; then, with what
//             is left, single offers by the most they gain. A sum within `spare` of the least ends it.
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

// Each layer's offers are keep_useful() and begin with 0 moves. spare is 0 or more. Returns, for each layer,
// the index of the offer taken. After the deadline a layer's hull is not looked for further: its last offer
// stands for the rest.
std::vector<std::size_t> spend_moves(std::span<const std::vector<MoveOffer>> offers, int max_moves,
                                     double spare, const Deadline& deadline);

// What the sum of values can fall by.
double most_gain(std::span<const std::vector<MoveOffer>> offers);

// Sorted by moves; only those lower than all with as many moves or fewer.
void keep_useful(std::vector<MoveOffer>& offers);

}  // namespace evenkeel::internal
