// What each layer caches for a sequence when the model is served, from config.json.
#pragma once

#include <vector>

#include "evenkeel/io/internal/config_keys.h"
#include "evenkeel/model/family.h"
#include "evenkeel/model/model_description.h"

namespace evenkeel::internal {

// The caches of each layer; a layer may have several. Reads the layers and attention of `model`, and adds a
// note to it if a cache is not counted exactly. Throws ParseError, naming the key.
std::vector<std::vector<CacheShape>> layer_caches(const ConfigKeys& keys, const AttentionRule& rule,
                                                  ModelDescription& model);

}  // namespace evenkeel::internal
