// Which ranks share a host.
#pragma once

#include <vector>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

// Collective. The host of each rank, as its system names it, numbered from 0 in the order of the ranks: what
// CpuOptions::node_of_rank (layer/moe_layer.h) wants.
std::vector<int> host_of_rank(Communicator& comm);

}  // namespace evenkeel
