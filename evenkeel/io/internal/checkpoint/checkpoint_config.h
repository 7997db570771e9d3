// What a checkpoint's config.json says about experts.
#pragma once

#include <string>

#include "evenkeel/io/internal/json.h"
#include "evenkeel/model/family.h"
#include "evenkeel/model/routing_groups.h"

namespace evenkeel::internal {

struct CheckpointConfig {
  const Family* family = nullptr;  // its tensors are known
  int num_layers = 0;              // hidden layers, dense ones too
  int num_experts = 0;
  RoutingGroups groups;
};

// Configs may name single experts by number, for example in a list of modules that are not quantized. A list
// that names all experts of a layer, or an object with equal values for all of them, stays true under any
// order. Throws Unsupported if a list names only some experts, or values differ: such an entry would need
// renumbering, and each tool has its own syntax. The error quotes an entry and what is missing.
void require_all_or_no_experts(const Json& config, int num_experts, const std::string& file);

// Throws Unsupported for a family whose tensors are not known, or a config that names some experts by number;
// ParseError for a damaged config.
CheckpointConfig read_checkpoint_config(const ByteSource& source);

}  // namespace evenkeel::internal
