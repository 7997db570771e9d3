// Well-known machines by name, each with the public page its figures are from.
//
//   Topology topology = preset_topology("2x8xh100");  // two nodes of eight; any NxMxh100 has N nodes of M
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
  std::string_view name;     // "h100", of which there are 8xh100 and 2x8xh100; or a whole machine's
  std::string_view summary;  // one line for people
  int ranks;                 // of a whole machine, in one node; 0: as many as the name says
  Link within;
  Link across;
  std::string_view source;  // pages of the vendor
};

std::span<const TopologyPreset> topology_presets();
// "8xh100, 2x8xh100, ...", for messages.
std::string topology_preset_names();
bool is_topology_preset(std::string_view name);
// The device (devices.h) that a preset is of; nothing where none is known by name.
std::string_view preset_device(std::string_view name);
// Throws InvalidArgument for a name that is none, listing those there are.
Topology preset_topology(const std::string& name);

}  // namespace evenkeel
