#include "evenkeel/io/model_layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/config_layers.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/language_config.h"

namespace evenkeel {

using namespace internal;

std::vector<int> ModelLayers::all_layers() const {
  std::vector<int> all = moe_layers;
  all.insert(all.end(), mtp_layers.begin(), mtp_layers.end());
  return all;
}

namespace {

// `family` is that of the whole file, for an object that names none that is known.
ModelLayers layers_by(const ConfigKeys& config, const Family* family) {
  const Family* own = known_family(config.word("model_type"));
  return layers_of(config, own != nullptr ? own : family);
}

}  // namespace

ModelLayers read_model_layers(const ByteSource& source) {
  std::string file;
  const JsonDocument json = read_model_config(source, file);
  std::vector<ConfigKeys> all = nested_configs(json, file);
  std::erase_if(all, [](const ConfigKeys& config) { return !speaks_of_experts(config); });
  if (all.empty())
    throw parse_error(file, "",
                      "names no experts; a model that has them says how many ({}) and in which layers",
                      fmt::join(expert_count_keys, ", "));
  const auto counted =
      std::ranges::find_if(all, [](const ConfigKeys& config) { return hidden_layers(config).has_value(); });
  const Family* family = language_config(json, file).family;
  if (counted == all.end()) return layers_by(all.front(), family);
  const ModelLayers layers = layers_by(*counted, family);
  for (const ConfigKeys& other : all)
    if (&other > &*counted && hidden_layers(other) && layers_by(other, family) != layers)
      other.fail("",
                 "says other layers than the config around it; right would be the same, or one of the two");
  return layers;
}

}  // namespace evenkeel
