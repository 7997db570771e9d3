// Whether a model's router chooses groups of experts first, from its Hugging Face config.json
// (docs/checkpoints.md#groups).
#pragma once

#include "evenkeel/io/byte_source.h"
#include "evenkeel/model/routing_groups.h"

namespace evenkeel {

// Of a model of so many experts a layer whose checkpoint can be permuted: a file, or a folder that holds
// config.json. One group where the config says nothing of groups, has other experts or is of another model.
RoutingGroups read_model_groups(const ByteSource& source, int num_experts);

}  // namespace evenkeel
