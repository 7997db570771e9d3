// How many layers and experts a file or an option may speak of, beside max_ranks: far above every model
// known, and low enough that a damaged number asks for no unbounded memory.
#pragma once

#include "evenkeel/topology/topology.h"

namespace evenkeel {

inline constexpr int max_layers = 65536;
inline constexpr int max_experts = 65536;

}  // namespace evenkeel
