#include "evenkeel/io/model_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/config_layers.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/language_config.h"

namespace evenkeel {

std::vector<int> ModelLayers::all_layers() const {
  std::vector<int> all = moe_layers;
  all.insert(all.end(), mtp_layers.begin(), mtp_layers.end());
  return all;
}

namespace {

// `family` is that of the whole file, for an object that names none that is known.
ModelLayers layers_by(const internal::ConfigKeys& config, const Family* family) {
  const Family* own = known_family(config.word("model_type"));
  return internal::layers_of(config, own != nullptr ? own : family);
}

}  // namespace

ModelLayers read_model_layers(const std::string& path) {
  return read_model_layers(internal::open_config(path));
}

ModelLayers read_model_layers(std::shared_ptr<const ByteSource> source) {
  const std::string& file = source->name();
  if (const FileFormat format = detect_format(*source); format != FileFormat::json)
    throw ParseError(file, "", fmt::format("is {}; a model's config is JSON", name_of(format)));
  const internal::JsonDocument json = internal::read_config_json(*source);
  if (!json.is_object()) throw ParseError(file, "", "is not a JSON object");
  std::vector<internal::ConfigKeys> all = internal::nested_configs(json, file);
  std::erase_if(all, [](const internal::ConfigKeys& config) { return !internal::speaks_of_experts(config); });
  if (all.empty())
    throw ParseError(
        file, "",
        fmt::format("names no experts; a model that has them says how many ({}) and in which layers",
                    fmt::join(internal::expert_count_keys, ", ")));
  const auto counted = std::ranges::find_if(
      all, [](const internal::ConfigKeys& config) { return internal::hidden_layers(config).has_value(); });
  const Family* family = internal::language_config(json, file).family;
  if (counted == all.end()) return layers_by(all.front(), family);
  const ModelLayers layers = layers_by(*counted, family);
  for (const internal::ConfigKeys& other : all)
    if (&other > &*counted && internal::hidden_layers(other) && layers_by(other, family) != layers)
      other.fail("",
                 "says other layers than the config around it; right would be the same, or one of the two");
  return layers;
}

}  // namespace evenkeel
