// The facts about experts in a checkpoint's config.json.
#pragma once

#include <string>

#include "evenkeel/io/internal/json.h"
#include "evenkeel/model/family.h"
#include "evenkeel/model/routing_groups.h"

namespace evenkeel::internal {

struct CheckpointConfig {
  const Family* family = nullptr;  // one whose tensors are known
  int num_layers = 0;              // hidden layers, dense ones too
  int num_experts = 0;
  RoutingGroups groups;
};

// Configs that name modules, as lists of what is not quantized do, may name single experts by their numbers.
// A list that names all experts of a layer, and an object that says the same of each,
// stay true under any order. Throws Unsupported, quoting one entry and what is missing, where one names some
// only or says different things of them: it would have to be renumbered, and each tool writes it in its own
// way.
void require_all_or_no_experts(const Json& config, int num_experts, const std::string& file);

// Throws Unsupported for a family whose tensors are not known, or a config that speaks of some experts by
// number; ParseError for one that is damaged.
CheckpointConfig read_checkpoint_config(const ByteSource& source);

}  // namespace evenkeel::internal
