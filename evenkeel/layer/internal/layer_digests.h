// The arguments that all ranks must build a layer from alike, as digests.
#pragma once

#include <vector>

#include "evenkeel/layer/internal/agreement.h"
#include "evenkeel/layer/moe_layer.h"

namespace evenkeel::internal {

std::vector<Digest> digests_of(const MoeShape& shape, const MoeOptions& options,
                               const LayerPlacement& placement, bool bounded_arena);

}  // namespace evenkeel::internal
