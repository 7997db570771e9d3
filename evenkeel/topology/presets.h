// Well-known machines by name, each with the public source of its figures.
//
//   Topology topology = preset_topology("2x8xh100");  // two nodes of eight; any NxMxh100 has N nodes of M
//
// A GPU's NVLink bandwidth is published as the sum of both directions; a Link is one direction, so it has
// half of that. Bandwidths are the published peaks. Latencies are 0: vendors publish none, and measured ones
// depend on the software. A topology file can give measured latencies.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "evenkeel/topology/topology.h"

namespace evenkeel {

struct TopologyPreset {
  std::string_view name;     // a device ("h100", as in 8xh100 and 2x8xh100), or a whole machine
  std::string_view summary;  // one line for people
  int ranks;                 // of a whole machine with one node; 0: the name has the numbers
  Link within;
  Link across;
  std::string_view source;  // web pages of the vendor
};

std::span<const TopologyPreset> topology_presets();
// "8xh100, 2x8xh100, ...", for messages.
std::string topology_preset_names();
bool is_topology_preset(std::string_view name);
// The name of the preset's device in devices.h; empty if devices.h does not have the device.
std::string_view preset_device(std::string_view name);
// Throws InvalidArgument for an unknown name; the error lists the known names.
Topology preset_topology(const std::string& name);

}  // namespace evenkeel
