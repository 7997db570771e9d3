// How far chance goes in what was recorded: independent parts of it, and bounds on a mean over them.
//
// Units     what nobody disputes to be independent enough: the sequences of a trace; else the steps that a
//           file tells apart; else the whole recording, as one. Tokens are not, nor are windows of them:
//           tokens of a sequence are alike, and a placement fits what is alike.
// Blocks    20 of whole units, in order (Recording::num_blocks). As many recordings are the units. Of fewer,
//           each is cut into blocks, and block i is the i-th of every recording; where one has fewer units,
//           there are none.
// Bounds    Student's t of the gains of blocks, 19 degrees of freedom.
// Measured  benchmarks/verdict_rates.cpp: how often noise is called a gain, and a gain is found.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/plan/dispatch.h"
#include "evenkeel/routing/recording.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

// What a block has of one recording: steps, or the sum of sequences, or all of it.
struct BlockPart {
  std::size_t recording = 0;
  std::span<const RoutingProfile> profiles;
};
using Block = std::vector<BlockPart>;

// All of them, or none. They refer to the recordings.
std::vector<Block> blocks_of(std::span<const Recording> recordings);
// What is missing where there are none, in words: "r.npz has 12 sequences, and 20 are needed".
std::string why_no_blocks(std::span<const Recording> recordings);
// How many times what was recorded would make blocks; below 1 where there is more than that.
double times_to_have_blocks(std::span<const Recording> recordings);

// max/mean of the ranks' loads, in the mean of the layers with load; nothing where there is no load.
std::optional<double> level_of(const RoutingProfile& profile, const Topology& topology,
                               const ServedPlacement& placement);
// level_of() of a block: the mean over its recordings, of each the mean over its profiles. `placements`: by
// recording.
double level_of(const Block& block, std::span<const ServedPlacement> placements, const Topology& topology);

// What a step gains, and how sure that is. Both bounds hold but for chance of the size that was asked for.
struct Gain {
  double before = 1;  // levels, mean over blocks
  double after = 1;
  double mean = 0;
  double standard_error = 0;
  double half_width = 0;

  double low() const { return mean - half_width; }
  double high() const { return mean + half_width; }
};
// Of levels by block before and after. `chance`: that the mean is above `low` and the truth is not, of each
// bound.
Gain gain_of(std::span<const double> before, std::span<const double> after, double chance);

double mean_of(std::span<const double> values);
// The smallest value that so large a part of all does not exceed. They are sorted, and one at least.
double quantile(std::span<const double> sorted, double part);

// The value that Student's t of 19 degrees of freedom exceeds with this chance, below a half.
double student_quantile(double chance);

}  // namespace evenkeel
