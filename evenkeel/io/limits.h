// The most layers and experts that a file or an option may name (ranks: max_ranks). The limits are far above
// every known model, and low enough that a damaged number cannot ask for unbounded memory.
#pragma once

#include "evenkeel/topology/topology.h"

namespace evenkeel {

inline constexpr int max_layers = 65536;
inline constexpr int max_experts = 65536;

}  // namespace evenkeel
