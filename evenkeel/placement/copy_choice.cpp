#include "evenkeel/placement/copy_choice.h"

#include <algorithm>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel {

namespace {

// Ranks this level gain nothing from further copies.
constexpr double kLevel = 1.01;
constexpr double kLeastSeconds = 1e-3;

double worst_of(const PlaceResult& placed) {
  double worst = placed.after.max_over_mean_mean;
  if (placed.per_recording.empty()) return worst;
  worst = 0;
  for (const RecordingQuality& each : placed.per_recording)
    worst = std::max(worst, each.after.max_over_mean_mean);
  return worst;
}

// The furthest below the line from the first to the last; the first where nothing is gained.
int knee_of(const std::vector<CopyChoice::Tried>& tried) {
  const CopyChoice::Tried& first = tried.front();
  const CopyChoice::Tried& last = tried.back();
  const double gained = first.max_over_mean - last.max_over_mean;
  if (tried.size() == 1 || gained <= 0) return first.redundant_experts;
  const auto span = static_cast<double>(last.redundant_experts - first.redundant_experts);
  const auto below_line = [&](const CopyChoice::Tried& each) {
    const double copies = (each.redundant_experts - first.redundant_experts) / span;
    return (first.max_over_mean - each.max_over_mean) / gained - copies;
  };
  const auto knee = std::ranges::max_element(tried, {}, below_line);
  // Where all of it lies on the line, or level ranks are reached at once, the last is the knee.
  return below_line(*knee) > 1e-9 ? knee->redundant_experts : last.redundant_experts;
}

}  // namespace

CopyChoice choose_copies(std::span<const RoutingProfile> recordings, const Topology& topology,
                         const PlaceOptions& asked) {
  if (recordings.empty()) throw InvalidArgument("recordings", "are none", "one or more");
  if (asked.from)
    throw InvalidArgument("from", "says how many slots there are, which redundant experts auto would choose",
                          "a number of redundant experts beside it");
  const int experts = recordings.front().num_experts();
  const int ranks = topology.num_ranks();
  const internal::Deadline deadline(asked.limits);
  PlaceOptions options = asked;
  CopyChoice choice;
  for (int copies = (ranks - experts % ranks) % ranks; copies <= experts; copies += ranks) {
    if (!choice.tried.empty() && deadline.passed()) break;
    options.redundant_experts = copies;
    if (!choice.tried.empty())
      options.limits.time_limit_s = std::max(deadline.left().time_limit_s, kLeastSeconds);
    const double worst = worst_of(place(recordings, topology, options));
    choice.tried.push_back(
        {copies, worst, static_cast<double>(experts + copies) / static_cast<double>(experts)});
    if (worst <= kLevel || static_cast<int>(choice.tried.size()) == CopyChoice::kMostTried) break;
  }
  if (choice.tried.empty())
    throw InvalidArgument("redundant_experts",
                          "auto looks for copies that give every rank equally many slots, and there are more "
                          "ranks than twice the experts",
                          "a number");
  choice.redundant_experts = knee_of(choice.tried);
  return choice;
}

}  // namespace evenkeel
