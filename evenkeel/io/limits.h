// How many layers, experts and ranks a file or an option may speak of: far above every model known, and low
// enough that a damaged number asks for no unbounded memory.
#pragma once

namespace evenkeel {

inline constexpr int max_layers = 65536;
inline constexpr int max_experts = 65536;
inline constexpr int max_ranks = 65536;

}  // namespace evenkeel
