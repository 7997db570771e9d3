#include "evenkeel/io/read_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/recording_of.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

using namespace internal;

std::string parse_as(const std::string& option, const std::string& text) {
  if (text.empty() || text == "counts" || text == "trace") return text;
  throw InvalidArgument(option, fmt::format("'{}'", text), "counts, trace");
}

Recording read_recording(const ByteSource& source, const ReadOptions& options) {
  return read_recording_known(detect_content(source), source, options);
}

Recording internal::read_recording_known(Content content, const ByteSource& source,
                                         const ReadOptions& options) {
  if (options.num_experts && (*options.num_experts < 1 || *options.num_experts > max_trace_experts))
    throw InvalidArgument("num_experts", fmt::format("{} experts", *options.num_experts),
                          fmt::format("1..{}", max_trace_experts));
  if (!options.axes.empty() && !options.columns.empty())
    throw InvalidArgument("columns", "are given beside axes, which say the same", "one of the two");
  try {
    return recording_of(find_routing(content, source, options), source.name(), options);
  } catch (const ParseError& error) {
    if (options.steps != ReadOptions::Steps::if_told) throw;
    ReadOptions whole = options;
    whole.steps = ReadOptions::Steps::added_up;
    Recording recording = recording_of(find_routing(content, source, whole), source.name(), whole);
    recording.notes.push_back(fmt::format("its steps are not told apart: {}", error.what()));
    return recording;
  }
}

namespace {

void require_same_model(const Recording& first, const Recording& other, const std::string& argument) {
  const RoutingProfile &a = first.profile, &b = other.profile;
  const bool numbered = a.layers().known() && b.layers().known();
  if (a.num_layers() == b.num_layers() && a.num_experts() == b.num_experts() &&
      (!numbered || a.layers() == b.layers()))
    return;
  const auto what_it_has = [](const Recording& each) {
    return fmt::format("{} has {} of {} experts", each.name,
                       described(each.profile.layers(), each.profile.num_layers()),
                       each.profile.num_experts());
  };
  throw InvalidArgument(argument, fmt::format("{}, but {}", what_it_has(other), what_it_has(first)),
                        "recordings of the same layers and experts");
}

void require_sum(std::span<const Recording> recordings, const std::string& argument) {
  std::int64_t sum = 0;
  for (const Recording& each : recordings) {
    const auto loads = each.profile.loads();
    if (__builtin_add_overflow(sum, std::reduce(loads.begin(), loads.end(), std::int64_t{0}), &sum))
      throw InvalidArgument(argument,
                            fmt::format("the loads up to those of {} add up to more than 2^63-1", each.name),
                            "recordings whose loads are at most 2^63-1 together");
  }
}

}  // namespace

std::vector<Recording> read_recordings(const std::vector<std::string>& paths, const ReadOptions& options,
                                       const std::string& argument) {
  std::vector<Recording> all;
  std::size_t numbered = 0;  // the first that knows its layers' numbers
  for (const std::string& path : paths) {
    Recording one = read_recording(path, options);
    for (const std::size_t i : {std::size_t{0}, numbered})
      if (i < all.size()) require_same_model(all[i], one, argument);
    if (numbered < all.size() && !all[numbered].profile.layers().known()) numbered = all.size();
    all.push_back(std::move(one));
  }
  require_sum(all, argument);
  return all;
}

Recording read_recording_of_some_layers(const std::string& path, const ReadOptions& options) {
  if (!options.layers) return read_recording(path, options);
  ReadOptions without = options;
  without.layers.reset();
  try {
    Recording recording = read_recording(path, without);
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

Recording read_recording_of_steps(const std::string& path, ReadOptions options) {
  options.count = ReadOptions::Count::nothing;
  options.steps = ReadOptions::Steps::kept;
  Recording recording = read_recording(path, options);
  if (!recording.trace && options.step_tokens)
    throw InvalidArgument("step_tokens", fmt::format("is for traces, and {} has counts", path),
                          "to leave it out");
  if (recording.steps.empty() && recording.trace)
    throw InvalidArgument("step_tokens",
                          fmt::format("is not given, and {} is a trace that does not say its steps", path),
                          "how many tokens a step has");
  if (recording.steps.empty())
    throw InvalidArgument("steps", fmt::format("{} does not say its steps", path),
                          "counts by step (an array [steps, layers, experts], a column or key 'step', a "
                          "recording of forward passes), or a trace and --step-tokens");
  recording.profile = recording.steps.front();
  for (const RoutingProfile& step : std::span(recording.steps).subspan(1)) recording.profile.add(step);
  return recording;
}

}  // namespace evenkeel
