// Traffic between ranks as a picture of characters: darker is more.
#pragma once

#include <span>
#include <string>

#include "evenkeel/topology/topology.h"

namespace evenkeel {

// Two matrices [P, P] beside each other on one scale, row by sender; at most 100 columns. Above 32 ranks a
// cell is a pair of nodes, or of blocks of ranks. What stays in a cell's own rank or block is a dot.
std::string heat_maps(const Topology& topology, std::span<const double> before, std::span<const double> after,
                      const std::string& before_name, const std::string& after_name);

}  // namespace evenkeel
