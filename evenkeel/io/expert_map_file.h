// The map from original to new expert ids of a permuted checkpoint: evenkeel_placement.json in its folder,
// format evenkeel.expert_map.v1 (docs/checkpoints.md#the-map).
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
  int num_ranks = 0;  // contiguous expert parallelism over this many ranks realises the placement
  // [layer number in the model][expert id in the original checkpoint]: the id in this checkpoint. Layers that
  // were never permuted are left out.
  std::map<int, std::vector<ExpertId>> new_ids = {};
};

// Throws ParseError if the file has another format, or a layer's ids are not a permutation.
ExpertMap read_expert_map(const ByteSource& source);

void write_expert_map(const ExpertMap& map, const std::string& path);

// The map that applies `first`, then `then`. Throws InvalidArgument if their numbers of experts differ.
ExpertMap composed(const ExpertMap& first, const ExpertMap& then);

}  // namespace evenkeel
