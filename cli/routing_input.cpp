#include "cli/routing_input.h"

#include "evenkeel/io/routing_file.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel::cli {

RoutingInput read_input(const std::string& path, const InputNeeds& needs) {
  const bool layer_to_layer = needs.traffic == TrafficModel::layer_to_layer;
  RoutingOptions how{.bare = parse_bare("--as", needs.as), .transitions = layer_to_layer};
  if (needs.num_experts > 0) how.num_experts = needs.num_experts;
  RoutingFile file = open_routing(path, how);
  require_bare(file, how.bare);
  // A profile's own transitions cost nothing and are kept.
  RoutingInput input{.profile = file.profile ? *file.profile : profile_of(file, how)};
  if (file.trace && !layer_to_layer) input.sources = source_counts(*file.trace, needs.num_ranks);
  return input;
}

}  // namespace evenkeel::cli
