#include "evenkeel/io/recordings.h"

#include <fmt/format.h>

#include <numeric>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

RecordedRouting recording_of(RoutingFile& file, const std::string& path, const RoutingOptions& options) {
  RecordedRouting recording{.name = path, .profile = {}, .steps = {}, .notes = file.notes};
  if (!file.profile) recording.profile = profile_of(file, options);
  recording.steps = steps_of(file, std::nullopt);
  // A profile's own transitions cost nothing and are kept.
  if (file.profile) recording.profile = *std::move(file.profile);
  return recording;
}

void require_same_model(const RecordedRouting& first, const RecordedRouting& other,
                        const std::string& argument) {
  const RoutingProfile &a = first.profile, &b = other.profile;
  const bool numbered = a.layers().known() && b.layers().known();
  if (a.num_layers() == b.num_layers() && a.num_experts() == b.num_experts() &&
      (!numbered || a.layers() == b.layers()))
    return;
  const auto what_it_has = [](const RecordedRouting& each) {
    return fmt::format("{} has {} of {} experts", each.name,
                       described(each.profile.layers(), each.profile.num_layers()),
                       each.profile.num_experts());
  };
  throw InvalidArgument(argument, fmt::format("{}, but {}", what_it_has(other), what_it_has(first)),
                        "recordings of the same layers and experts");
}

}  // namespace

RecordedRouting read_recording(const std::string& path, const RoutingOptions& options) {
  RoutingFile file = open_routing(path, options);
  return recording_of(file, path, options);
}

std::vector<RecordedRouting> read_recordings(
    const std::vector<std::string>& paths, const RoutingOptions& options, const std::string& argument,
    const std::function<void(const RecordedRouting&, RoutingFile&)>& opened) {
  std::vector<RecordedRouting> all;
  std::size_t numbered = 0;  // the first that knows its layers' numbers
  for (const std::string& path : paths) {
    RoutingFile file = open_routing(path, options);
    RecordedRouting one = recording_of(file, path, options);
    if (opened) opened(one, file);
    for (const std::size_t i : {std::size_t{0}, numbered})
      if (i < all.size()) require_same_model(all[i], one, argument);
    if (numbered < all.size() && !all[numbered].profile.layers().known()) numbered = all.size();
    all.push_back(std::move(one));
  }
  return all;
}

RecordedRouting read_recording_of_some_layers(const std::string& path, const RoutingOptions& options) {
  if (!options.layers) return read_recording(path, options);
  RoutingOptions without = options;
  without.layers.reset();
  try {
    RecordedRouting recording = read_recording(path, without);
    RoutingProfile& profile = recording.profile;
    const std::int64_t named = std::ssize(*options.layers);
    // The model may have numbered the rows otherwise.
    if (options.model && profile.num_layers() == named) return read_recording(path, options);
    if (!profile.layers().known() && profile.num_layers() == named)
      profile.set_layers(LayerNumbers(*options.layers, "moe_layers"));
    if (profile.layers().known() || profile.num_layers() <= named) return recording;
  } catch (const InvalidArgument&) {
    // Rows that are asked about: the option answers.
  }
  return read_recording(path, options);
}

RecordedRouting recording_of_steps(RoutingFile& file, const std::string& path,
                                   std::optional<std::int64_t> step_tokens) {
  if (!file.trace && step_tokens)
    throw InvalidArgument("step_tokens", fmt::format("is for traces, and {} has counts", path),
                          "to leave it out");
  if (file.trace && file.step_tokens.empty() && !step_tokens)
    throw InvalidArgument("step_tokens",
                          fmt::format("is not given, and {} is a trace that does not say its steps", path),
                          "how many tokens a step has");
  RecordedRouting recording{
      .name = path, .profile = {}, .steps = steps_of(file, step_tokens), .notes = file.notes};
  if (recording.steps.empty())
    throw InvalidArgument("steps", fmt::format("{} does not say its steps", path),
                          "counts by step (an array [steps, layers, experts], a column or key 'step', a "
                          "recording of forward passes), or a trace and --step-tokens");
  recording.profile = recording.steps.front();
  for (const RoutingProfile& step : std::span(recording.steps).subspan(1)) recording.profile.add(step);
  return recording;
}

void require_sum(std::span<const RecordedRouting> recordings, const std::string& argument) {
  std::int64_t sum = 0;
  for (const RecordedRouting& each : recordings) {
    const auto loads = each.profile.loads();
    if (__builtin_add_overflow(sum, std::reduce(loads.begin(), loads.end(), std::int64_t{0}), &sum))
      throw InvalidArgument(argument,
                            fmt::format("the loads up to those of {} add up to more than 2^63-1", each.name),
                            "recordings whose loads are at most 2^63-1 together");
  }
}

}  // namespace evenkeel
