// Which ranks share a host.
#pragma once

#include <vector>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

// Collective. Returns the host of each rank. Hosts are told apart by the name that the system gives them, and
// are numbered from 0 in rank order. CpuOptions::node_of_rank (layer/moe_layer.h) takes the result.
std::vector<int> host_of_rank(Communicator& comm);

}  // namespace evenkeel
