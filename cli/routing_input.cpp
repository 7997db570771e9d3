#include "cli/routing_input.h"

#include <fmt/format.h>

#include <utility>

#include "cli/numbering.h"
#include "evenkeel/base/error.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel::cli {

RoutingInput read_input(const std::string& path, const InputNeeds& needs) {
  const bool layer_to_layer = needs.traffic == TrafficModel::layer_to_layer;
  RoutingOptions how = needs.routing;
  how.transitions = layer_to_layer;
  RoutingFile file = open_routing(path, how);
  require_bare(file, how.bare);
  // A profile's own transitions cost nothing and are kept.
  RoutingInput input{.profile = file.profile ? *file.profile : profile_of(file, how)};
  input.notes = std::move(file.notes);
  input.steps = steps_of(file, std::nullopt);
  if (file.trace && !layer_to_layer) input.sources = source_counts(*file.trace, needs.num_ranks);
  return input;
}

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

}  // namespace

RoutingInputs read_inputs(const std::vector<std::string>& paths, const InputNeeds& needs) {
  RoutingInputs all;
  bool sources_known = true;
  std::size_t numbered = 0;  // the first that knows its layers' numbers
  for (const std::string& path : paths) {
    RoutingInput one = read_input(path, needs);
    say_notes(path, one.notes);
    for (const std::size_t i : {std::size_t{0}, numbered})
      if (i < all.profiles.size()) require_same_model(all.profiles[i], all.names[i], one.profile, path);
    if (numbered < all.profiles.size() && !all.profiles[numbered].layers().known())
      numbered = all.profiles.size();
    all.names.push_back(path);
    all.profiles.push_back(std::move(one.profile));
    all.steps.push_back(std::move(one.steps));
    sources_known = sources_known && !one.sources.empty();
    if (all.sources.empty())
      all.sources = std::move(one.sources);
    else
      for (std::size_t i = 0; i < one.sources.counts.size(); ++i)
        all.sources.counts[i] += one.sources.counts[i];
  }
  if (!sources_known) all.sources = {};
  return all;
}

namespace {

// --moe-layers names the layers of what is placed; a judge may have some of them, and says so or has as many.
RoutingInput read_judge(const std::string& path, const InputNeeds& needs) {
  const std::optional<std::vector<int>>& named = needs.routing.layers;
  if (!named) return read_input(path, needs);
  InputNeeds without = needs;
  without.routing.layers.reset();
  try {
    RoutingInput input = read_input(path, without);
    const auto rows = static_cast<std::size_t>(input.profile.num_layers());
    if (!input.profile.layers().known() && rows == named->size())
      input.profile.set_layers(LayerNumbers(*named, "moe_layers"));
    if (input.profile.layers().known() || rows <= named->size()) return input;
  } catch (const InvalidArgument&) {
    // Rows that are asked about: --moe-layers answers.
  }
  return read_input(path, needs);
}

}  // namespace

RoutingInputs read_judges(const std::vector<std::string>& paths, const InputNeeds& needs) {
  InputNeeds alone = needs;
  alone.traffic = TrafficModel::layer_to_layer;  // where tokens live has no part in judging
  RoutingInputs all;
  for (const std::string& path : paths) {
    RoutingInput one = read_judge(path, alone);
    say_notes(path, one.notes);
    all.names.push_back(path);
    all.profiles.push_back(std::move(one.profile));
    all.steps.push_back(std::move(one.steps));
  }
  return all;
}

RoutingInputs read_step_inputs(const std::string& path, const InputNeeds& needs,
                               std::optional<std::int64_t> step_tokens) {
  RoutingOptions how = needs.routing;
  how.transitions = false;
  how.keep_steps = true;
  RoutingFile file = open_routing(path, how);
  require_bare(file, how.bare);
  say_notes(path, file.notes);
  if (!file.trace && step_tokens)
    throw InvalidArgument("--step-tokens", fmt::format("is for traces, and {} has counts", path),
                          "to leave it out");
  if (file.trace && file.step_tokens.empty() && !step_tokens)
    throw InvalidArgument("--step-tokens",
                          fmt::format("is not given, and {} is a trace that does not say its steps", path),
                          "how many tokens a step has");
  RoutingInputs all{.names = {}, .profiles = steps_of(file, step_tokens)};
  if (all.profiles.empty())
    throw InvalidArgument("--steps", fmt::format("{} does not say its steps", path),
                          "counts by step (an array [steps, layers, experts], a column or key 'step', a "
                          "recording of forward passes), or a trace and --step-tokens");
  for (RoutingProfile& step : all.profiles) {
    all.names.push_back(fmt::format("{}: step {}", path, all.names.size()));
    if (file.layers().known()) step.set_layers(file.layers());
  }
  return all;
}

}  // namespace evenkeel::cli
