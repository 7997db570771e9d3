#include "evenkeel/placement/evaluate/hold_out.h"

#include <algorithm>
#include <iterator>

#include "evenkeel/placement/evaluate/blocks.h"
#include "evenkeel/placement/evaluate/evaluate.h"

namespace evenkeel {

namespace {

constexpr std::size_t kBlocksOfFold = Recording::num_blocks / HeldOut::num_folds;

PlaceOptions options_of_folds(const PlaceOptions& asked, double solve_ms) {
  PlaceOptions options = asked;
  options.solver = PlaceOptions::Solver::fast;
  options.traffic = TrafficModel::layer_to_layer;
  options.pairs = PairObjective::worst_pair;
  options.sources = {};
  options.limits.progress = {};
  const double limit = asked.limits.time_limit_s;
  options.limits.time_limit_s = std::max(limit - solve_ms / 1e3, limit / 10) / HeldOut::num_folds;
  return options;
}

// The profiles to place for: all blocks except those of the fold.
std::vector<RoutingProfile> others(std::span<const Recording> recordings, std::span<const Block> blocks,
                                   std::size_t fold, PlacedFor what) {
  std::vector<std::vector<RoutingProfile>> of_recordings(recordings.size());
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (b / kBlocksOfFold == fold) continue;
    for (const auto& [recording, profiles] : blocks[b])
      for (const RoutingProfile& profile : profiles) {
        std::vector<RoutingProfile>& all = of_recordings[recording];
        if (all.empty() || what == PlacedFor::steps)
          all.push_back(profile.without_transitions());
        else
          all.front().add(profile.without_transitions());
      }
  }
  std::vector<RoutingProfile> placed_for;
  for (std::vector<RoutingProfile>& each : of_recordings)
    std::ranges::move(each, std::back_inserter(placed_for));
  return placed_for;
}

std::vector<ServedPlacement> served_on(const NamedPlacement& placement, std::span<const Recording> recordings,
                                       const Topology& topology) {
  std::vector<ServedPlacement> served;
  for (const Recording& each : recordings) served.push_back(placement.served_on(each, topology));
  return served;
}

}  // namespace

double HeldOut::mean_before() const {
  return mean_of(before);
}
double HeldOut::mean_after() const {
  return mean_of(after);
}

std::optional<HeldOut> hold_out(std::span<const Recording> recordings, PlacedFor what,
                                const Topology& topology, const PlaceOptions& asked, double solve_ms) {
  const std::vector<Block> blocks = blocks_of(recordings);
  const bool whole_steps = what == PlacedFor::recordings || recordings.front().sequence_blocks.empty();
  if (blocks.empty() || !whole_steps || asked.objective == PlaceOptions::Objective::joint)
    return std::nullopt;
  const PlaceOptions options = options_of_folds(asked, solve_ms);
  const std::vector<ServedPlacement> before = served_on(
      {.placement = asked.from, .argument = "from", .dispatch = asked.dispatch}, recordings, topology);
  HeldOut held_out;
  bool ended_by_time = false;
  for (std::size_t fold = 0; fold < std::size_t{HeldOut::num_folds}; ++fold) {
    const PlaceResult placed = place(others(recordings, blocks, fold, what), topology, options);
    if (asked.limits.stop.stop_requested()) return std::nullopt;
    ended_by_time = ended_by_time || placed.ended_by_time;
    const std::vector<ServedPlacement> after =
        served_on({.placement = placed.placement, .argument = "from", .dispatch = asked.dispatch}, recordings,
                  topology);
    for (const Block& block : std::span(blocks).subspan(fold * kBlocksOfFold, kBlocksOfFold)) {
      held_out.before.push_back(level_of(block, before, topology));
      held_out.after.push_back(level_of(block, after, topology));
    }
  }
  if (asked.solver == PlaceOptions::Solver::exact)
    held_out.notes.emplace_back("held-out data was judged with placements by the fast solver");
  if (ended_by_time)
    held_out.notes.emplace_back(
        "held-out data was judged with placements that were cut short by the time limit; they may be worse");
  return held_out;
}

}  // namespace evenkeel
