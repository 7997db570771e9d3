// The weights of a model for which there is only a config.json, by its family's rule (model/families.cpp).
#pragma once

#include <vector>

#include "evenkeel/io/internal/config_keys.h"
#include "evenkeel/model/family.h"
#include "evenkeel/model/model_description.h"

namespace evenkeel::internal {

inline constexpr int max_width = 1 << 24;
inline constexpr int max_heads = 65536;

// Every weight that follows from the config, including layers of multi-token prediction. `model` has the
// sizes read so far. Throws ParseError, naming the key, for a missing or impossible size.
std::vector<Weight> weights_by_rule(const ConfigKeys& keys, const WeightRule& rule,
                                    const ModelDescription& model);

// Reads a number of key heads. Throws ParseError unless it divides `heads`.
std::int64_t key_heads(const ConfigKeys& keys, std::string_view key, std::int64_t heads);

}  // namespace evenkeel::internal
