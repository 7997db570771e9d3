// Traffic between ranks drawn with characters: darker means more.
#pragma once

#include <span>
#include <string>

#include "evenkeel/topology/topology.h"

namespace evenkeel {

// Draws two matrices [P, P] side by side on one scale, rows by sender, in at most 100 columns. Above 32 ranks
// a cell is a pair of nodes or of blocks of ranks. Traffic within a rank or block is a dot.
std::string heat_maps(const Topology& topology, std::span<const double> before, std::span<const double> after,
                      const std::string& before_name, const std::string& after_name);

}  // namespace evenkeel
