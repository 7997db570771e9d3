// The bytes that the layer's arena needs at least to run a model's training steps, whatever the routing
// (docs/budget.md).
#pragma once

#include <cstdint>
#include <optional>

#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel {

// On one device of the stage, for the tokens that it brings to a step. The workspace of the products is a
// part of it, so they are made for the shape, which takes up to about a second, and a few for experts of half
// a billion weights. Nothing where the layer or this CPU cannot multiply the type, where the stage has no
// experts, or for more tokens or states than a layer is made for.
std::optional<std::int64_t> least_layer_budget(const MemoryModel& memory, int stage);

}  // namespace evenkeel
