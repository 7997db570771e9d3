// The facts about experts in a checkpoint's config.json.
#pragma once

#include "evenkeel/io/byte_source.h"
#include "evenkeel/model/family.h"

namespace evenkeel::internal {

// A model that first chooses `chosen` of `count` groups of consecutive experts, then experts among theirs.
struct ExpertGroups {
  int count = 1;
  int chosen = 1;
  // All groups are chosen: as if there were none.
  bool bind() const { return chosen < count; }
};

struct CheckpointConfig {
  const Family* family = nullptr;  // one whose tensors are known
  int num_layers = 0;              // hidden layers, dense ones too
  int num_experts = 0;
  ExpertGroups groups;
};

// Throws Unsupported for a family whose tensors are not known, or a config that speaks of some experts by
// number; ParseError for one that is damaged.
CheckpointConfig read_checkpoint_config(const ByteSource& source);

}  // namespace evenkeel::internal
