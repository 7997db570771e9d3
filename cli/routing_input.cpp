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
  for (const std::string& path : paths) {
    RoutingInput one = read_input(path, needs);
    say_notes(path, one.notes);
    if (!all.profiles.empty()) require_same_model(all.profiles.front(), paths.front(), one.profile, path);
    all.profiles.push_back(std::move(one.profile));
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

}  // namespace evenkeel::cli
