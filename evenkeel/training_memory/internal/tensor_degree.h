// The limits of tensor parallelism.
#pragma once

#include <cstdint>

#include "evenkeel/model/model_description.h"

namespace evenkeel::internal {

inline constexpr std::int64_t most_tensor = 8;  // the number of devices in a node

inline bool may_split_heads(const ModelDescription& model, std::int64_t tensor) {
  return tensor <= most_tensor && model.attention.heads % tensor == 0;
}

}  // namespace evenkeel::internal
