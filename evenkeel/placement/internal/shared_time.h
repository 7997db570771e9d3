// Shares the time of a solve among its parts, such as layers, so that time left by easy parts goes to hard
// ones.
//
// Method      Rounds. In each round every open part gets an equal share of the round's time; what a part
//             leaves goes to the parts after it. Solvers restart from scratch at each call, so the first
//             round gets a quarter of the time and the next round all that is left. A part is tried again
//             only with at least 1.5 times its previous time.
// Guarantee   No part starts after the time is over.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

constexpr double kFirstRound = 0.25;
constexpr double kWorthTryingAgain = 1.5;
constexpr double kForeverSeconds = 1e9;  // shares of an infinite time would not be numbers

struct OpenPart {
  std::size_t part = 0;
  double had_seconds = 0;  // in its last try
};

// solve(part, seconds) returns true if the part ended by itself, false if time cut it off. enough() returns
// true if no more is needed. Returns the parts that are still open; none if there is enough.
template <class Solve, class Enough>
std::vector<OpenPart> solve_in_rounds(std::vector<OpenPart> open, double seconds, const Deadline& deadline,
                                      Solve solve, Enough enough) {
  const double end = deadline.seconds() + std::min(seconds, kForeverSeconds);
  double part_of_time = open.size() > 1 ? kFirstRound : 1;
  for (bool tried = true; tried && !open.empty(); part_of_time = 1) {
    const double round_end = end - (1 - part_of_time) * (end - deadline.seconds());
    std::vector<OpenPart> left;
    tried = false;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (enough()) return {};
      const double share = (round_end - deadline.seconds()) / static_cast<double>(open.size() - i);
      const bool is_tried =
          share > 0 && share >= kWorthTryingAgain * open[i].had_seconds && !deadline.passed();
      tried = tried || is_tried;
      if (is_tried) open[i].had_seconds = share;
      if (!is_tried || !solve(open[i].part, share)) left.push_back(open[i]);
    }
    open = std::move(left);
  }
  return enough() ? std::vector<OpenPart>() : open;
}

}  // namespace evenkeel::internal
