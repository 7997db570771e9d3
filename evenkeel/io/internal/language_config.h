// The config of a language model in a config.json: the whole, or an object inside it, as models of text and
// images have it.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/config_keys.h"
#include "evenkeel/model/family.h"

namespace evenkeel::internal {

// A config.json, or the one in a folder of a model, whose name goes to `file`. Throws ParseError if it is no
// JSON object.
JsonDocument read_model_config(const ByteSource& source, std::string& file);

// The outermost object, and the language models' inside it, at most two deep.
std::vector<ConfigKeys> nested_configs(const Json& config, const std::string& file);

struct LanguageConfig {
  ConfigKeys keys;  // of the outermost object that says how many layers there are; else of the whole
  ConfigKeys whole;
  // By the model types and architectures of `keys` and of what is around it; null where none is known.
  const Family* family = nullptr;
  std::string model_type;  // by which the family is known, else what the file has; may be empty
};

// Throws ParseError if model_type or architectures are no names.
LanguageConfig language_config(const Json& config, const std::string& file);
std::vector<std::string> architectures_of(const ConfigKeys& config);

}  // namespace evenkeel::internal
