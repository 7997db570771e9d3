// Topologies in JSON files, format evenkeel.topology.v1 (docs/formats.md#topology).
#pragma once

#include <string>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

// Throws ParseError: not this format, an unknown key, sizes that do not fit, a bandwidth, speed or capacity
// that no machine has.
Topology read_topology(const ByteSource& source);

// A machine by its name (topology/presets.h), or by a file. Throws as above; where no such file can be
// opened, with the names that there are.
Topology named_topology(const std::string& name);

// The text of a topology file, in one line.
std::string to_json(const Topology& topology);
void write_topology(const Topology& topology, const std::string& path);

}  // namespace evenkeel
