#include "cli/routing_input.h"

#include <utility>

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

}  // namespace evenkeel::cli
