#include "evenkeel/placement/copy_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel {

namespace {

// Ranks with a max/mean of at most this gain too little from further copies.
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

// Index of the point furthest below the straight line from the first point to the last; 0 if copies gain
// nothing.
std::size_t knee_of(const std::vector<CopyChoice::Tried>& tried) {
  const CopyChoice::Tried& first = tried.front();
  const CopyChoice::Tried& last = tried.back();
  const double gained = first.max_over_mean - last.max_over_mean;
  if (tried.size() == 1 || gained <= 0) return 0;
  const auto span = static_cast<double>(last.redundant_experts - first.redundant_experts);
  const auto below_line = [&](const CopyChoice::Tried& each) {
    const double copies = (each.redundant_experts - first.redundant_experts) / span;
    return (first.max_over_mean - each.max_over_mean) / gained - copies;
  };
  const auto knee = std::ranges::max_element(tried, {}, below_line);
  // If every point lies on the line, or one step levels the ranks, the last is the knee.
  return below_line(*knee) > 1e-9 ? static_cast<std::size_t>(knee - tried.begin()) : tried.size() - 1;
}

// Runs place() for `seconds`, a share of the requested time limit. Its notes name the requested limit.
PlaceResult place_with(int copies, std::span<const RoutingProfile> recordings, const Topology& topology,
                       PlaceOptions options, double seconds) {
  const double asked = options.limits.time_limit_s;
  options.redundant_experts = copies;
  options.limits.time_limit_s = std::max(seconds, kLeastSeconds);
  PlaceResult placed = place(recordings, topology, options);
  std::ranges::replace(placed.notes, internal::note_of_time_limit(options.limits.time_limit_s),
                       internal::note_of_time_limit(asked));
  return placed;
}

// Tries numbers of copies until ranks are level, all numbers are tried, or the time is over.
std::vector<CopyChoice::Tried> try_numbers(std::span<const RoutingProfile> recordings,
                                           const Topology& topology, const PlaceOptions& options,
                                           const internal::Deadline& deadline,
                                           std::vector<PlaceResult>& placed) {
  const int experts = recordings.front().num_experts();
  const int ranks = topology.num_ranks();
  std::vector<CopyChoice::Tried> tried;
  for (int copies = (ranks - experts % ranks) % ranks; copies <= experts; copies += ranks) {
    if (!tried.empty() && deadline.passed()) break;
    const auto left = static_cast<double>(CopyChoice::kMostTried - std::ssize(tried) + 1);  // + 1: the knee
    placed.push_back(place_with(copies, recordings, topology, options, deadline.seconds_left() / left));
    const double worst = worst_of(placed.back());
    tried.push_back({copies, worst, static_cast<double>(experts + copies) / static_cast<double>(experts)});
    if (worst <= kLevel || std::ssize(tried) == CopyChoice::kMostTried) break;
  }
  return tried;
}

}  // namespace

CopyChoice choose_copies(std::span<const RoutingProfile> recordings, const Topology& topology,
                         const PlaceOptions& asked) {
  if (recordings.empty()) throw InvalidArgument("recordings", "is empty", "one or more");
  if (asked.from)
    throw InvalidArgument(
        "from",
        "does not work with redundant experts auto: a placement to start from fixes the number of slots",
        "a number of redundant experts, or no placement to start from");
  const internal::Deadline deadline(asked.limits);
  std::vector<PlaceResult> placed;
  std::vector<CopyChoice::Tried> tried = try_numbers(recordings, topology, asked, deadline, placed);
  if (tried.empty())
    throw InvalidArgument("redundant_experts",
                          fmt::format("auto tries at most {0} copies of {0} experts, too few for {1} ranks",
                                      recordings.front().num_experts(), topology.num_ranks()),
                          "a number of redundant experts");
  const std::size_t knee = knee_of(tried);
  const CopyChoice::Tried& last = tried.back();
  const bool all_tried = last.max_over_mean <= kLevel || std::ssize(tried) == CopyChoice::kMostTried ||
                         last.redundant_experts + topology.num_ranks() > recordings.front().num_experts();
  const int copies = tried[knee].redundant_experts;
  CopyChoice choice{
      .tried = std::move(tried), .redundant_experts = copies, .placed = std::move(placed[knee])};
  if (choice.placed.ended_by_time && deadline.seconds_left() > kLeastSeconds)
    choice.placed = place_with(copies, recordings, topology, asked, deadline.seconds_left());
  if (!all_tried && !deadline.stop_requested())
    choice.placed.notes.push_back(
        fmt::format("the time limit of {} s left no time to try larger numbers of redundant experts",
                    asked.limits.time_limit_s));
  choice.placed.solve_ms = deadline.seconds() * 1e3;
  return choice;
}

}  // namespace evenkeel
