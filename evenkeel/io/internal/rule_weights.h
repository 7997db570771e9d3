// The weights of a model of which only a config.json is there, by its family's rule (model/families.cpp).
#pragma once

#include <vector>

#include "evenkeel/io/internal/config_keys.h"
#include "evenkeel/model/family.h"
#include "evenkeel/model/model_description.h"

namespace evenkeel::internal {

inline constexpr int max_width = 1 << 24;
inline constexpr int max_heads = 65536;

// Every weight that the config says there is, those of layers for further tokens included. `model` has all
// else that is read. Throws ParseError, naming the key: a size that is missing or cannot be.
std::vector<Weight> weights_by_rule(const ConfigKeys& keys, const WeightRule& rule,
                                    const ModelDescription& model);

// A number of key heads, which divides that of all heads.
std::int64_t key_heads(const ConfigKeys& keys, std::string_view key, std::int64_t heads);

}  // namespace evenkeel::internal
