// What a placement is worth on traffic that it was not made from, where there is only what it is made from:
// most of the recordings are placed for, and the rest of them judges.
//
// Method    ten folds of two blocks (blocks.h). In each fold the other blocks are placed for by the same
//           options, and the two are judged.
// Solver    fast, in an equal share of what is left of the time limit, and of a tenth of it at least: the
//           folds may end after the limit by that much.
// Traffic   has no part: ranks are named without it. So a joint placement, which it shapes, is not held out.
// Estimates the placement of nine tenths of the data, which is a little worse than that of all.
// Cost      ten placements, and the blocks judged once.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/place.h"
#include "evenkeel/routing/recording.h"

namespace evenkeel {

struct HeldOut {
  static constexpr int num_folds = 10;

  // By block, max/mean of a step, mean of layers and over recordings.
  std::vector<double> before;
  std::vector<double> after;
  std::vector<std::string> notes = {};  // what the folds did otherwise than the placement

  double mean_before() const;
  double mean_after() const;
};

// How the recordings are placed for: each as a whole, or each step of the only one.
enum class PlacedFor { recordings, steps };

// `options` are those of the placement, which took `solve_ms`. Nothing where there are no blocks, where the
// placement is joint, where steps are placed for but blocks are of sequences, or where somebody asked to
// stop. Throws as place() does.
std::optional<HeldOut> hold_out(std::span<const Recording> recordings, PlacedFor what,
                                const Topology& topology, const PlaceOptions& options, double solve_ms);

}  // namespace evenkeel
