// A model's description from its Hugging Face config.json (docs/formats.md#model-config).
#pragma once

#include "evenkeel/io/byte_source.h"
#include "evenkeel/model/model_description.h"

namespace evenkeel {

// Takes the config of a language model, or one that has it as its `text_config`. Throws ParseError, naming
// the key: a model_type that is not known, a missing or impossible number.
ModelDescription read_model_description(const ByteSource& source);

}  // namespace evenkeel
