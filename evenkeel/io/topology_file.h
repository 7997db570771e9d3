// Topologies in JSON files, format evenkeel.topology.v1 (docs/formats.md#topology).
#pragma once

#include <string>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

// Throws ParseError if the file has another format, a key is unknown, sizes do not fit, or a bandwidth, speed
// or capacity is out of range.
Topology read_topology(const ByteSource& source);

// Takes the name of a known machine (topology/presets.h), or a path. Throws as above; if no such file exists,
// the error lists the known names.
Topology named_topology(const std::string& name);

// The text of a topology file, on one line.
std::string to_json(const Topology& topology);
void write_topology(const Topology& topology, const std::string& path);

}  // namespace evenkeel
