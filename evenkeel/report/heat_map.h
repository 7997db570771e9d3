// Draws traffic between ranks with characters: a darker character means more traffic.
#pragma once

#include <span>
#include <string>

#include "evenkeel/topology/topology.h"

namespace evenkeel {

// Draws two matrices [P, P] side by side on one scale, one row for each sender, in at most 100 columns. Above
// 32 ranks, each row and column of cells is a node or a block of ranks. Traffic within a rank, node or block
// is drawn as a dot.
std::string heat_maps(const Topology& topology, std::span<const double> before, std::span<const double> after,
                      const std::string& before_name, const std::string& after_name);

}  // namespace evenkeel
