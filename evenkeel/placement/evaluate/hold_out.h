// Estimates a placement's quality on traffic that it was not made from, by cross-validation on its own
// recordings.
//
// Method    ten folds of two blocks (blocks.h). Each fold places for the other blocks with the same options,
//           and judges the result on its two blocks.
// Solver    fast. The folds share the rest of the time limit equally. Together they get at least a tenth of
//           the limit, so they may end that much after it.
// Traffic   is ignored when ranks are numbered. So a joint placement, which depends on traffic, is not held
//           out.
// The estimate is for a placement made from nine tenths of the data, which is a little worse than one made
// from all data.
// Cost      ten placements, and each block judged once.
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

  // By block: max/mean of a step, averaged over layers and recordings.
  std::vector<double> before;
  std::vector<double> after;
  std::vector<std::string> notes = {};  // how the folds differ from the placement

  double mean_before() const;
  double mean_after() const;
};

// What to place for: each recording as a whole, or each step of a single recording.
enum class PlacedFor { recordings, steps };

// `options` are those of the placement, which took `solve_ms`. Returns nothing if there are no blocks, if the
// placement is joint, if it is made for steps but blocks consist of sequences, or if a stop was requested.
// Throws as place() does.
std::optional<HeldOut> hold_out(std::span<const Recording> recordings, PlacedFor what,
                                const Topology& topology, const PlaceOptions& options, double solve_ms);

}  // namespace evenkeel
