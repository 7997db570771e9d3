// The config of a language model in a config.json, either the whole file or an object inside it, and what it
// says about layers and experts (docs/formats.md#layers-with-experts).
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
  std::shared_ptr<const ConfigFile> file;  // the other members refer to it
  // The outermost object, then the configs of language models inside it, at most two levels deep.
  std::vector<ConfigKeys> nested;
  ConfigKeys whole;  // the outermost
  ConfigKeys keys;   // the outermost object that has a number of layers; else `whole`
  // By the model types and architectures in `keys` and `whole`; null if none is known.
  const Family* family = nullptr;
  std::string model_type = "";  // the one that identified the family, else the file's; may be empty
};

// Reads a config.json, or the one in a model's folder. Throws ParseError if it is not a JSON object, or
// model_type or architectures are not names.
LanguageConfig read_language_config(const ByteSource& source);
std::vector<std::string> architectures_of(const ConfigKeys& config);

// Keys for the number of experts in a layer.
inline constexpr std::array<std::string_view, 5> expert_count_keys = {
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts"};

bool speaks_of_experts(const ConfigKeys& config);
// The number of hidden layers, from any known key; nullopt if there is none.
std::optional<int> hidden_layers(const ConfigKeys& config);
// Experts in each MoE layer; 0 if no key says it. Throws ParseError if a key says that there are no experts.
int num_experts(const ConfigKeys& config);
// The number of layers of multi-token prediction, from any known key; 0 if there is none.
int prediction_layers(const ConfigKeys& config);
// Experts of a token, from any known key that is not a list by layer; 0 if there is none.
int top_k(const ConfigKeys& config);
// The groups of experts that a router chooses first. nullopt if the family always chooses groups and no key
// gives their number. Throws ParseError for an impossible number, or if groups would have unequal numbers of
// experts.
std::optional<RoutingGroups> routing_groups(const ConfigKeys& config, const Family& family, int num_experts);
// If no key says which layers have experts, the family of config's own model type decides, else `around`, the
// family of the surrounding config (null if unknown). Throws ParseError as read_model_layers() does.
ModelLayers layers_of(const ConfigKeys& config, const Family* around);

}  // namespace evenkeel::internal
