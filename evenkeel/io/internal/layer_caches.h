// What each layer of a config.json keeps of a sequence when the model is served.
#pragma once

#include <vector>

#include "evenkeel/io/internal/config_keys.h"
#include "evenkeel/model/family.h"
#include "evenkeel/model/model_description.h"

namespace evenkeel::internal {

// By layer; several where a layer keeps several things. Of `model` are read its layers and attention; a note
// is added for what is taken to be another than the config says. Throws ParseError, naming the key.
std::vector<std::vector<CacheShape>> layer_caches(const ConfigKeys& keys, const AttentionRule& rule,
                                                  ModelDescription& model);

}  // namespace evenkeel::internal
