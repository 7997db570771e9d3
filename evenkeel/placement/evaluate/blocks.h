// How much chance affects a recording: its independent parts, and bounds on a mean over them.
//
// Units     parts that are independent enough: the sequences of a trace, else the steps that a file
//           separates, else the whole recording as one unit. Tokens and windows of tokens are not
//           independent: tokens of one sequence are alike, so a placement made from some of them also fits
//           the others.
// Blocks    20 blocks of whole units, in order (Recording::num_blocks). With 20 or more recordings, each
//           recording is a unit. With fewer, each recording is cut into 20 parts, and block i joins part i of
//           every recording. If one recording has fewer than 20 units, there are no blocks.
// Bounds    Student's t over the gains of blocks, 19 degrees of freedom.
// Measured  benchmarks/verdict_rates.cpp: how often noise is called a gain, and how often a gain is found.
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

// A block's part of one recording: steps, the sum of sequences, or the whole recording.
struct BlockPart {
  std::size_t recording = 0;
  std::span<const RoutingProfile> profiles;
};
using Block = std::vector<BlockPart>;

// Returns 20 blocks or none. They refer to the recordings.
std::vector<Block> blocks_of(std::span<const Recording> recordings);
// Why there are no blocks: "r.npz has 12 sequences, and 20 are needed".
std::string why_no_blocks(std::span<const Recording> recordings);
// How many times as much data as was recorded is needed to form blocks; below 1 if there is more than enough.
double times_to_have_blocks(std::span<const Recording> recordings);

// max/mean of the ranks' loads, averaged over the layers with load; nothing where there is no load.
std::optional<double> level_of(const RoutingProfile& profile, const Topology& topology,
                               const ServedPlacement& placement);
// level_of() for a block: the mean over its recordings of the mean over each recording's profiles.
// `placements` is indexed by recording.
double level_of(const Block& block, std::span<const ServedPlacement> placements, const Topology& topology);

// What a step gains, with bounds. Each bound is wrong with the requested probability.
struct Gain {
  double before = 1;  // max/mean, averaged over blocks
  double after = 1;
  double mean = 0;
  double standard_error = 0;
  double half_width = 0;

  double low() const { return mean - half_width; }
  double high() const { return mean + half_width; }
};
// Computes the gain from the levels of the blocks, before and after. `chance`: the probability that one bound
// is wrong, for example that the true mean is below low().
Gain gain_of(std::span<const double> before, std::span<const double> after, double chance);

double mean_of(std::span<const double> values);
// The smallest of the values such that at least this part of all values is at or below it. Needs one or more
// values, sorted.
double quantile(std::span<const double> sorted, double part);

// The value that Student's t with 19 degrees of freedom exceeds with this probability; `chance` is below 0.5.
double student_quantile(double chance);

}  // namespace evenkeel
