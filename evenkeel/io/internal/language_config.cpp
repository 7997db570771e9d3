#include "evenkeel/io/internal/language_config.h"

#include <array>
#include <filesystem>
#include <string_view>

#include "evenkeel/io/internal/config_layers.h"

namespace evenkeel::internal {

namespace {

// Where one model has another inside, that of the language.
constexpr std::array<std::string_view, 4> language_models = {"text_config", "language_config", "llm_config",
                                                             "thinker_config"};

void collect(const ConfigKeys& config, int depth, std::vector<ConfigKeys>& all) {
  all.push_back(config);
  if (depth == 0) return;
  for (const std::string_view key : language_models)
    if (const Json* inner = config.find(key); inner != nullptr && inner->is_object())
      collect(ConfigKeys(*inner, config.file(), config.name(key) + "."), depth - 1, all);
}

std::string model_type_of(const ConfigKeys& config) {
  const Json* stated = config.find("model_type");
  if (stated == nullptr) return "";
  if (!stated->is_string()) config.fail("model_type", "is not a name");
  return stated->get<std::string>();
}

}  // namespace

JsonDocument read_model_config(const ByteSource& source, std::string& file) {
  const bool folder = source.is_folder();
  const ByteSource config =
      folder ? ByteSource((std::filesystem::path(source.name()) / "config.json").string()) : source;
  file = config.name();
  require_json(config, "a model's config");
  JsonDocument json = read_config_json(config);
  if (!json.is_object()) throw ParseError(file, "", "is not a JSON object");
  return json;
}

std::vector<ConfigKeys> nested_configs(const Json& config, const std::string& file) {
  std::vector<ConfigKeys> all;
  collect(ConfigKeys(config, file, ""), 2, all);
  return all;
}

std::vector<std::string> architectures_of(const ConfigKeys& config) {
  std::vector<std::string> names;
  const Json* stated = config.find("architectures");
  if (stated == nullptr) return names;
  if (!stated->is_array()) config.fail("architectures", "is not a list");
  for (const Json& name : *stated) {
    if (!name.is_string()) config.fail("architectures", "is not a list of names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

LanguageConfig language_config(const Json& config, const std::string& file) {
  const std::vector<ConfigKeys> all = nested_configs(config, file);
  LanguageConfig found{.keys = all.front(), .whole = all.front(), .family = nullptr, .model_type = ""};
  for (const ConfigKeys& each : all) {
    if (!hidden_layers(each)) continue;
    found.keys = each;
    break;
  }
  // A model type that is known decides; else an architecture, for models that only rename one.
  for (const ConfigKeys& each : {found.keys, found.whole}) {
    const std::string type = model_type_of(each);
    if (found.model_type.empty()) found.model_type = type;
    if (found.family != nullptr) continue;
    found.family = known_family(type);
    if (found.family != nullptr) found.model_type = type;
  }
  for (const ConfigKeys& each : {found.keys, found.whole})
    for (const std::string& name : architectures_of(each))
      if (found.family == nullptr) found.family = family_of_architecture(name);
  if (found.family != nullptr && found.model_type.empty()) found.model_type = found.family->name();
  return found;
}

}  // namespace evenkeel::internal
