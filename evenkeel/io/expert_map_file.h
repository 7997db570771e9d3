// Which expert is which in a permuted checkpoint: evenkeel_placement.json beside it, format
// evenkeel.expert_map.v1 (docs/checkpoints.md#the-map).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/io/byte_source.h"

namespace evenkeel {

inline constexpr const char* expert_map_name = "evenkeel_placement.json";

struct ExpertMap {
  int num_experts = 0;
  int num_ranks = 0;  // contiguous expert parallelism over so many ranks is the placement
  // [layer of the model, dense ones counted][expert of the original checkpoint]: its id here. Layers that
  // were never permuted are left out.
  std::map<int, std::vector<ExpertId>> new_ids = {};
};

// Throws ParseError: not this format, or a layer whose ids are not a permutation.
ExpertMap read_expert_map(const ByteSource& source);

void write_expert_map(const ExpertMap& map, const std::string& path);

// One after the other. Throws InvalidArgument if they are of unlike numbers of experts.
ExpertMap composed(const ExpertMap& first, const ExpertMap& then);

}  // namespace evenkeel
