#include "evenkeel/io/model_layers.h"

#include <fmt/format.h>

#include <algorithm>

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
  const LanguageConfig file = read_language_config(source);
  std::vector<ConfigKeys> all = file.nested;
  std::erase_if(all, [](const ConfigKeys& config) { return !speaks_of_experts(config); });
  if (all.empty())
    file.whole.fail("", "names no experts; a model that has them says how many ({}) and in which layers",
                    fmt::join(expert_count_keys, ", "));
  const ConfigKeys outermost = all.front();
  std::erase_if(all, [](const ConfigKeys& config) { return !hidden_layers(config); });
  const ModelLayers layers = layers_by(all.empty() ? outermost : all.front(), file.family);
  for (const ConfigKeys& other : all)
    if (layers_by(other, file.family) != layers)
      other.fail("",
                 "says other layers than the config around it; right would be the same, or one of the two");
  return layers;
}

RoutingGroups read_model_groups(const ByteSource& source, int experts) {
  const LanguageConfig config = read_language_config(source);
  if (config.family == nullptr || !config.family->tensors || num_experts(config.keys) != experts) return {};
  return routing_groups(config.keys, *config.family, experts).value_or(RoutingGroups{});
}

}  // namespace evenkeel
