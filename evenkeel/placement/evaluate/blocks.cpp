#include "evenkeel/placement/evaluate/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numbers>
#include <numeric>

#include "evenkeel/placement/quality.h"

namespace evenkeel {

namespace {

constexpr std::size_t kBlocks = Recording::num_blocks;
constexpr int kDegrees = Recording::num_blocks - 1;
static_assert(kDegrees % 2 == 1, "student_tail() is the series for odd degrees of freedom");

struct Units {
  std::size_t count = 1;
  const char* name = nullptr;  // null if the whole recording is one unit
};

Units units_of(const Recording& recording) {
  if (recording.trace && !recording.trace->info().sequence_offsets.empty())
    return {sequences_of(recording.trace->info()).size(), "sequence"};
  if (!recording.sequence_blocks.empty()) return {recording.sequence_blocks.size(), "sequence"};
  if (recording.steps.empty() || recording.steps_are_windows) return {};
  return {recording.steps.size(), "step"};
}

// The i-th of Recording::num_blocks equal parts, in order.
template <class T>
std::span<const T> part_of(std::span<const T> all, std::size_t block) {
  const std::size_t begin = block * all.size() / kBlocks;
  return all.subspan(begin, (block + 1) * all.size() / kBlocks - begin);
}

std::span<const RoutingProfile> profiles_of(const Recording& recording) {
  if (recording.steps.empty() || recording.steps_are_windows) return {&recording.profile, 1};
  return recording.steps;
}

std::vector<Block> blocks_of_recordings(std::span<const Recording> recordings) {
  std::vector<Block> blocks(kBlocks);
  for (std::size_t block = 0; block < kBlocks; ++block)
    for (const Recording& each : part_of(recordings, block))
      blocks[block].push_back({static_cast<std::size_t>(&each - recordings.data()), profiles_of(each)});
  return blocks;
}

const Recording& fewest_units(std::span<const Recording> recordings) {
  return *std::ranges::min_element(recordings, {},
                                   [](const Recording& each) { return units_of(each).count; });
}

// P(T > t) for odd degrees of freedom: Abramowitz and Stegun, 26.7.3.
double student_tail(double t) {
  const double angle = std::atan(t / std::sqrt(kDegrees));
  double term = std::cos(angle), sum = term;
  for (int k = 3; k < kDegrees; k += 2) sum += term *= std::cos(angle) * std::cos(angle) * (k - 1) / k;
  return 0.5 - (angle + std::sin(angle) * sum) / std::numbers::pi;
}

}  // namespace

double mean_of(std::span<const double> values) {
  return std::reduce(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double quantile(std::span<const double> sorted, double part) {
  const double rank = std::ceil(part * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

std::vector<Block> blocks_of(std::span<const Recording> recordings) {
  if (recordings.size() >= kBlocks) return blocks_of_recordings(recordings);
  std::vector<Block> blocks(kBlocks);
  for (std::size_t r = 0; r < recordings.size(); ++r) {
    if (units_of(recordings[r]).count < kBlocks) return {};
    const std::span<const RoutingProfile> sequences = recordings[r].sequence_blocks;
    for (std::size_t block = 0; block < kBlocks; ++block)
      blocks[block].push_back(
          {r, part_of(sequences.empty() ? std::span<const RoutingProfile>(recordings[r].steps) : sequences,
                      block)});
  }
  return blocks;
}

std::string why_no_blocks(std::span<const Recording> recordings) {
  const Recording& fewest = fewest_units(recordings);
  const Units units = units_of(fewest);
  if (!units.name)
    return fmt::format(
        "{} does not say where sequences or steps begin, and tokens of one sequence are not independent",
        fewest.name);
  return fmt::format("{} has {} {}{}, and {} are needed", fewest.name, units.count, units.name,
                     units.count == 1 ? "" : "s", Recording::num_blocks);
}

double times_to_have_blocks(std::span<const Recording> recordings) {
  const std::size_t units = std::max(units_of(fewest_units(recordings)).count, recordings.size());
  return static_cast<double>(kBlocks) / static_cast<double>(std::max<std::size_t>(units, 1));
}

std::optional<double> level_of(const RoutingProfile& profile, const Topology& topology,
                               const ServedPlacement& placement) {
  const PlacementQuality quality = placement_quality(profile, topology, placement.homes, placement.shares);
  double sum = 0;
  int layers = 0;
  for (LayerId layer : indices<LayerId>(profile.num_layers())) {
    if (profile.total_load(layer) == 0) continue;
    sum += quality.max_over_mean[layer.offset()];
    ++layers;
  }
  if (layers == 0) return std::nullopt;
  return sum / layers;
}

double level_of(const Block& block, std::span<const ServedPlacement> placements, const Topology& topology) {
  double of_recordings = 0;
  for (const auto& [recording, profiles] : block) {
    double sum = 0;
    int with_load = 0;
    for (const RoutingProfile& profile : profiles)
      if (const auto level = level_of(profile, topology, placements[recording])) {
        sum += *level;
        ++with_load;
      }
    of_recordings += with_load > 0 ? sum / with_load : 1;
  }
  return of_recordings / static_cast<double>(block.size());
}

Gain gain_of(std::span<const double> before, std::span<const double> after, double chance) {
  std::vector<double> gains;
  std::ranges::transform(before, after, std::back_inserter(gains), std::minus());
  const double mean = mean_of(gains);
  double squares = 0;
  for (double gain : gains) squares += (gain - mean) * (gain - mean);
  const double error = std::sqrt(squares / kDegrees / Recording::num_blocks);
  return {.before = mean_of(before),
          .after = mean_of(after),
          .mean = mean,
          .standard_error = error,
          .half_width = error * student_quantile(chance)};
}

double student_quantile(double chance) {
  double low = 0, high = 1;
  while (student_tail(high) > chance) high *= 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (student_tail(middle) > chance ? low : high) = middle;
  }
  return high;
}

}  // namespace evenkeel
