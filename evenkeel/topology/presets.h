// Well-known machines by name, each with the public page its figures are from.
//
//   Topology topology = preset_topology("2x8xh100");
//
// A GPU's NVLink bandwidth is published as the sum of both directions; a Link is one direction, so half of
// it. Bandwidths are the published peaks. Latencies are 0: the vendors publish none, and what is measured
// depends on the software; a topology file can say yours.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "evenkeel/topology/topology.h"

namespace evenkeel {

struct TopologyPreset {
  std::string_view name;     // "8xh100"
  std::string_view summary;  // one line for people
  int num_nodes;
  int ranks_per_node;
  Link within;
  Link across;
  std::string_view source;  // pages of the vendor
};

std::span<const TopologyPreset> topology_presets();
bool is_topology_preset(std::string_view name);
// Throws InvalidArgument for a name that is none, listing those there are.
Topology preset_topology(const std::string& name);

}  // namespace evenkeel
