// Topologies in JSON files, format evenkeel.topology.v1 (docs/formats.md#topology).
#pragma once

#include <string>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

// Throws ParseError: not this format, an unknown key, sizes that do not fit, a bandwidth, speed or capacity
// that no machine has.
Topology read_topology(const ByteSource& source);

void write_topology(const Topology& topology, const std::string& path);

}  // namespace evenkeel
