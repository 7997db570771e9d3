#include "evenkeel/io/internal/checkpoint/family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

// "MixtralForCausalLM" and the model without its head, "MixtralModel".
bool is_architecture(const Family& family, std::string_view name) {
  if (!name.starts_with(family.architecture)) return false;
  const std::string_view ending = name.substr(family.architecture.size());
  return ending == "ForCausalLM" || ending == "Model";
}

std::vector<std::string> architectures_of(const Json& config, const std::string& file) {
  std::vector<std::string> names;
  const auto stated = config.find("architectures");
  if (stated == config.end() || stated->is_null()) return names;
  if (!stated->is_array()) throw ParseError(file, "architectures", "is not a list");
  for (const Json& name : *stated) {
    if (!name.is_string()) throw ParseError(file, "architectures", "is not a list of names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

std::string model_type_of(const Json& config, const std::string& file) {
  const auto stated = config.find("model_type");
  if (stated == config.end() || stated->is_null()) return "";
  if (!stated->is_string()) throw ParseError(file, "model_type", "is not a name");
  return stated->get<std::string>();
}

// A model_type that is known decides; else an architecture, for models that only rename one (Kimi K2 is
// "kimi_k2" and DeepseekV3ForCausalLM).
const Family& family_of(const Json& config, const std::string& file) {
  const std::string type = model_type_of(config, file);
  const std::vector<std::string> architectures = architectures_of(config, file);
  for (const Family& family : known_families())
    if (family.model_type == type) return family;
  for (const Family& family : known_families())
    for (const std::string& name : architectures)
      if (is_architecture(family, name)) return family;
  std::vector<std::string_view> known;
  for (const Family& family : known_families()) known.push_back(family.model_type);
  throw Unsupported(fmt::format(
      "{}: model_type '{}' (architectures: {}) is not one whose experts this can permute; "
      "known: {}",
      file, type, architectures.empty() ? "none" : fmt::format("{}", fmt::join(architectures, ", ")),
      fmt::join(known, ", ")));
}

std::optional<int> optional_count(const Json& config, const char* key, std::int64_t most,
                                  const std::string& file) {
  const auto stated = config.find(key);
  if (stated == config.end() || stated->is_null()) return std::nullopt;
  return small_integer(*stated, 1, most, file, key);
}

// transformers writes one or the other, depending on its version.
int num_experts_of(const Json& config, const std::string& file) {
  constexpr std::array keys{"num_local_experts", "num_experts", "n_routed_experts"};
  std::optional<int> experts;
  for (const char* key : keys) {
    const auto stated = optional_count(config, key, max_experts, file);
    if (stated && experts && *stated != *experts)
      throw ParseError(file, key, fmt::format("is {}, where another key says {}", *stated, *experts));
    if (stated) experts = stated;
  }
  if (!experts) throw ParseError(file, "", fmt::format("has none of {}", fmt::join(keys, ", ")));
  return *experts;
}

ExpertGroups groups_of(const Json& config, int num_experts, const std::string& file) {
  ExpertGroups groups;
  groups.count = optional_count(config, "n_group", num_experts, file).value_or(1);
  groups.chosen = optional_count(config, "topk_group", groups.count, file).value_or(groups.count);
  if (num_experts % groups.count != 0)
    throw ParseError(file, "n_group",
                     fmt::format("{} experts are not equally many in {} groups", num_experts, groups.count));
  return groups;
}

// "...experts.17..." and the like.
bool names_one_expert(std::string_view text) {
  constexpr std::string_view word = "experts.";
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t after = at + word.size();
    if (after < text.size() && std::isdigit(static_cast<unsigned char>(text[after])) != 0) return true;
  }
  return false;
}

// Quantized models may list modules that are treated otherwise. Where they list single experts, the list
// would have to be renumbered with them, and each tool writes it in its own way.
void refuse_numbered_experts(const Json& value, const std::string& file) {
  const auto refuse_in = [&](const std::string& text) {
    if (names_one_expert(text))
      throw Unsupported(
          fmt::format("{}: '{}' speaks of one expert by its number, which this cannot renumber", file, text));
  };
  if (value.is_string()) refuse_in(value.get<std::string>());
  if (value.is_array())
    for (const Json& child : value) refuse_numbered_experts(child, file);
  if (!value.is_object()) return;
  for (const auto& [key, child] : value.items()) {
    refuse_in(key);
    refuse_numbered_experts(child, file);
  }
}

}  // namespace

const std::vector<Family>& known_families() {
  static const std::vector<Family> families = {
      {.model_type = "mixtral",
       .architecture = "Mixtral",
       .modules = {"block_sparse_moe", "mlp"},
       .router = "gate",
       .shared_parts = {}},
      {.model_type = "qwen3_moe",
       .architecture = "Qwen3Moe",
       .modules = {"mlp"},
       .router = "gate",
       .shared_parts = {}},
      {.model_type = "olmoe",
       .architecture = "Olmoe",
       .modules = {"mlp"},
       .router = "gate",
       .shared_parts = {}},
      {.model_type = "deepseek_v3",
       .architecture = "DeepseekV3",
       .modules = {"mlp"},
       .router = "gate",
       .shared_parts = {"shared_experts"}},
      {.model_type = "gpt_oss",
       .architecture = "GptOss",
       .modules = {"mlp"},
       .router = "router",
       .shared_parts = {}},
  };
  return families;
}

ModelConfig read_model_config(const ByteSource& source) {
  const std::string& file = source.name();
  const JsonDocument config = read_json(source);
  if (!config.is_object()) throw ParseError(file, "", "is not a JSON object");
  ModelConfig model;
  model.family = &family_of(config, file);
  model.num_layers =
      small_integer(member(config, "num_hidden_layers", file), 1, max_layers, file, "num_hidden_layers");
  model.num_experts = num_experts_of(config, file);
  model.groups = groups_of(config, model.num_experts, file);
  refuse_numbered_experts(config, file);
  return model;
}

}  // namespace evenkeel::internal
