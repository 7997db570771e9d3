#include "cli/place_inputs.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "cli/file_options.h"
#include "evenkeel/base/error.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel::cli {

namespace {

std::string described(const RoutingProfile& profile) {
  return fmt::format("{} of {} experts", described(profile.layers(), profile.num_layers()),
                     profile.num_experts());
}

void require_same_model(const RoutingProfile& first, const std::string& first_path,
                        const RoutingProfile& other, const std::string& other_path) {
  const bool numbered = first.layers().known() && other.layers().known();
  if (first.num_layers() == other.num_layers() && first.num_experts() == other.num_experts() &&
      (!numbered || first.layers() == other.layers()))
    return;
  throw InvalidArgument(
      "PROFILE",
      fmt::format("{} has {}, but {} has {}", other_path, described(other), first_path, described(first)),
      "recordings of the same layers and experts");
}

Recording read_recording(RoutingFile& file, const std::string& path, const RoutingOptions& options) {
  // A profile's own transitions cost nothing and are kept.
  return {path, file.profile ? *file.profile : profile_of(file, options), steps_of(file, std::nullopt),
          file.notes};
}

void add(SourceCounts one, SourceCounts& sum) {
  if (sum.empty()) return std::swap(sum, one);
  for (std::size_t i = 0; i < one.counts.size(); ++i) sum.counts[i] += one.counts[i];
}

Recording read_judge(const std::string& path, const RoutingOptions& options) {
  RoutingFile file = open_input(path, options);
  return read_recording(file, path, options);
}

// --moe-layers names the layers of what is placed; a judge may have some of them, and says so or has as many.
Recording read_judge_of_some_layers(const std::string& path, const RoutingOptions& options) {
  RoutingOptions without = options;
  without.layers.reset();
  try {
    Recording judge = read_judge(path, without);
    const auto rows = static_cast<std::size_t>(judge.profile.num_layers());
    if (!judge.profile.layers().known() && rows == options.layers->size())
      judge.profile.set_layers(LayerNumbers(*options.layers, "moe_layers"));
    if (judge.profile.layers().known() || rows <= options.layers->size()) return judge;
  } catch (const InvalidArgument&) {
    // Rows that are asked about: --moe-layers answers.
  }
  return read_judge(path, options);
}

// Before anything is placed or written.
void require_fits(const Recording& judge, const PlaceInputs& placed) {
  const RoutingProfile& first = placed.first();
  if (judge.profile.num_experts() != first.num_experts())
    throw InvalidArgument("--judge",
                          fmt::format("{} has {} experts", judge.name, judge.profile.num_experts()),
                          fmt::format("{}, as {} has", first.num_experts(), placed.names.front()));
  paired_rows(judge.rows(), {placed.names.front(), placed.layers(), first.num_layers()}, "--judge");
}

}  // namespace

LayerNumbers PlaceInputs::layers() const {
  for (const RoutingProfile& profile : profiles())
    if (profile.layers().known()) return profile.layers();
  return {};
}

std::int64_t PlaceInputs::num_assignments() const {
  std::int64_t sum = 0;
  for (const RoutingProfile& profile : profiles())
    sum += std::reduce(profile.loads().begin(), profile.loads().end(), std::int64_t{0});
  return sum;
}

PlaceInputs read_inputs(const std::vector<std::string>& paths, const RoutingOptions& options, int num_ranks) {
  PlaceInputs all;
  bool sources_known = !options.transitions;
  std::size_t numbered = 0;  // the first that knows its layers' numbers
  for (const std::string& path : paths) {
    RoutingFile file = open_input(path, options);
    Recording one = read_recording(file, path, options);
    sources_known = sources_known && file.trace != nullptr;
    SourceCounts sources;
    if (sources_known) sources = source_counts(*file.trace, num_ranks);
    say_notes(path, file.notes);
    for (const std::size_t i : {std::size_t{0}, numbered})
      if (i < all.files.size()) require_same_model(all.files[i], all.names[i], one.profile, path);
    if (numbered < all.files.size() && !all.files[numbered].layers().known()) numbered = all.files.size();
    add(std::move(sources), all.sources);
    all.names.push_back(path);
    all.files.push_back(std::move(one.profile));
    one.profile = all.files.back().without_transitions();
    all.recordings.push_back(std::move(one));
  }
  if (!sources_known) all.sources = {};
  return all;
}

PlaceInputs read_steps(const std::string& path, RoutingOptions options,
                       std::optional<std::int64_t> step_tokens) {
  options.transitions = false;
  options.keep_steps = true;
  RoutingFile file = open_input(path, options);
  say_notes(path, file.notes);
  if (!file.trace && step_tokens)
    throw InvalidArgument("--step-tokens", fmt::format("is for traces, and {} has counts", path),
                          "to leave it out");
  if (file.trace && file.step_tokens.empty() && !step_tokens)
    throw InvalidArgument("--step-tokens",
                          fmt::format("is not given, and {} is a trace that does not say its steps", path),
                          "how many tokens a step has");
  std::vector<RoutingProfile> steps = steps_of(file, step_tokens);
  if (steps.empty())
    throw InvalidArgument("--steps", fmt::format("{} does not say its steps", path),
                          "counts by step (an array [steps, layers, experts], a column or key 'step', a "
                          "recording of forward passes), or a trace and --step-tokens");
  PlaceInputs all;
  RoutingProfile sum(steps.front().num_layers(), steps.front().num_experts(), false);
  for (RoutingProfile& step : steps) {
    all.names.push_back(fmt::format("{}: step {}", path, all.names.size()));
    if (file.layers().known()) step.set_layers(file.layers());
    sum.add(step);
  }
  all.recordings.push_back({path, std::move(sum), std::move(steps)});
  return all;
}

std::vector<Recording> read_judges(const std::vector<std::string>& paths, RoutingOptions options,
                                   const PlaceInputs& placed) {
  options.transitions = true;  // where tokens live has no part in judging
  std::vector<Recording> judges;
  for (const std::string& path : paths) {
    judges.push_back(options.layers ? read_judge_of_some_layers(path, options) : read_judge(path, options));
    say_notes(path, judges.back().notes);
  }
  for (const Recording& judge : judges) require_fits(judge, placed);
  return judges;
}

}  // namespace evenkeel::cli
