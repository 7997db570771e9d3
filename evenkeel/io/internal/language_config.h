// The config of a language model in a config.json, the whole or an object inside it, and what it says of
// layers and experts (docs/formats.md#layers-with-experts).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/config_keys.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/model/family.h"
#include "evenkeel/model/routing_groups.h"

namespace evenkeel::internal {

struct ConfigFile {
  std::string name;
  JsonDocument json;
};

struct LanguageConfig {
  std::shared_ptr<const ConfigFile> file;  // which the others look into
  // The outermost object, and the language models' inside it, at most two deep.
  std::vector<ConfigKeys> nested;
  ConfigKeys whole;  // the outermost
  ConfigKeys keys;   // of the outermost object that says how many layers there are; else of the whole
  // By the model types and architectures of `keys` and of what is around it; null where none is known.
  const Family* family = nullptr;
  std::string model_type = "";  // by which the family is known, else what the file has; may be empty
};

// A config.json, or the one in a folder of a model. Throws ParseError if it is no JSON object, or model_type
// or architectures are no names.
LanguageConfig read_language_config(const ByteSource& source);
std::vector<std::string> architectures_of(const ConfigKeys& config);

// By which a config says how many experts a layer has.
inline constexpr std::array<std::string_view, 5> expert_count_keys = {
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts"};

bool speaks_of_experts(const ConfigKeys& config);
// By whichever key says it.
std::optional<int> hidden_layers(const ConfigKeys& config);
// 0 where no key says it. Throws ParseError where one says that there are none.
int num_experts(const ConfigKeys& config);
// Layers of multi-token prediction, by whichever key says it.
int prediction_layers(const ConfigKeys& config);
// By whichever key says it alike in all layers; 0 where none does.
int top_k(const ConfigKeys& config);
// The groups of experts that a router chooses first. Nothing where no key says it, though the family always
// chooses groups. Throws ParseError: a number that cannot be, or experts that are not equally many in groups.
std::optional<RoutingGroups> routing_groups(const ConfigKeys& config, const Family& family, int num_experts);
// Where no key says it, the family of its own model type decides, else that of the config around it; null
// where none is known. Throws ParseError as read_model_layers() does.
ModelLayers layers_of(const ConfigKeys& config, const Family* around);

}  // namespace evenkeel::internal
