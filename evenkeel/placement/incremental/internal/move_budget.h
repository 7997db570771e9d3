// Divides a budget of moves among layers: chooses one of the states that each layer offers, so that the sum
// of their values is low and all moves are within the budget.
//
// Method      along the lower convex hulls of the layers' offers, the steepest segment first. Then the moves
//             that are left go to single offers, the largest gain first. Stops once the sum is within `spare`
//             of the least.
// Guarantee   within the budget. No choice that uses only as many moves as the whole segments did has a lower
//             sum than they reach.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

struct MoveOffer {
  int moves = 0;
  double value = 0;
  std::size_t state = 0;  // identifies the offered state within its layer
};

// Each layer's offers must be passed through keep_useful() and begin with 0 moves; spare is 0 or more.
// Returns the index of the chosen offer of each layer. Once the deadline has passed, one segment to the
// layer's last offer replaces the rest of its hull.
std::vector<std::size_t> spend_moves(std::span<const std::vector<MoveOffer>> offers, int max_moves,
                                     double spare, const Deadline& deadline);

// The most that the sum of values can fall.
double most_gain(std::span<const std::vector<MoveOffer>> offers);

// Sorts by moves. Keeps an offer only if its value is below that of every offer with as many or fewer moves.
void keep_useful(std::vector<MoveOffer>& offers);

}  // namespace evenkeel::internal
