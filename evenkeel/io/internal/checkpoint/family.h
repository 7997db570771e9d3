// The model families whose checkpoints can be permuted: how each names its MoE tensors, and what its
// config.json says of experts. Sources of the names: docs/checkpoints.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/byte_source.h"

namespace evenkeel::internal {

struct Family {
  std::string_view model_type;                 // as config.json has it
  std::string_view architecture;               // without its ending: "Mixtral" of "MixtralForCausalLM"
  std::vector<std::string_view> modules;       // of a layer, that may hold experts: "mlp"
  std::string_view router;                     // of a module: "gate"
  std::vector<std::string_view> shared_parts;  // of a module, that no expert id reaches: "shared_experts"
};

const std::vector<Family>& known_families();

// A model that first chooses `chosen` of `count` groups of consecutive experts, then experts among theirs.
struct ExpertGroups {
  int count = 1;
  int chosen = 1;
  // All groups are chosen: as if there were none.
  bool bind() const { return chosen < count; }
};

struct ModelConfig {
  const Family* family = nullptr;
  int num_layers = 0;  // hidden layers, dense ones too
  int num_experts = 0;
  ExpertGroups groups;
};

// Throws Unsupported for a family that is not known, or a config that speaks of single experts by number;
// ParseError for one that is damaged.
ModelConfig read_model_config(const ByteSource& source);

}  // namespace evenkeel::internal
