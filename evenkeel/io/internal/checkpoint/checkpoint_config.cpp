#include "evenkeel/io/internal/checkpoint/checkpoint_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <regex>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/language_config.h"

namespace evenkeel::internal {

namespace {

const Family& family_of(const LanguageConfig& config) {
  const std::string& file = config.whole.file();
  if (config.family == nullptr) {
    const std::vector<std::string> architectures = architectures_of(config.whole);
    std::vector<std::string_view> known;
    for (const Family& family : known_families())
      if (family.tensors) known.push_back(family.name());
    throw Unsupported(fmt::format(
        "{}: cannot permute the experts of model_type '{}' (architectures: {}); supported: {}", file,
        config.model_type, architectures.empty() ? "none" : fmt::format("{}", fmt::join(architectures, ", ")),
        fmt::join(known, ", ")));
  }
  const Family& family = *config.family;
  if (!family.tensors)
    throw Unsupported(fmt::format(
        "{}: the experts of {} cannot be permuted: {}", file, family.name(),
        family.not_permuted.empty() ? "the names of their tensors are not known" : family.not_permuted));
  return family;
}

// Replaces escaped dots of regular expressions by plain dots.
std::string without_escapes(const std::string& text) {
  static const std::regex escaped(R"(\\\.|\[\.\])");
  return std::regex_replace(text, escaped, ".");
}

// Whether a pattern (a regular expression or a shell pattern) may match some experts of a layer and not
// others. It cannot if "experts" is followed by nothing, a name, or a pattern for any number.
bool may_pick_experts(const std::string& text) {
  static const std::regex picks(
      R"(experts(?!\.?(?:$|[A-Za-z_)|$/:]|\*|\.[*+]|\(?(?:\\d|\[0-9\])[+*]|\\w\+|\[\^\.\]\+)))");
  return std::regex_search(text, picks);
}

// The experts that a list or an object names by names that differ only in the expert's number, such as
// "model.layers.3.mlp.experts.*.up_proj".
struct NamedExperts {
  std::map<int, std::string> texts;  // by expert number, as written in the file
  std::string says;
};

using NamesOfExperts = std::map<std::string, NamedExperts>;

[[noreturn]] void refuse_expert(const std::string& file, const std::string& text, const std::string& why) {
  throw Unsupported(fmt::format("{}: '{}' {}", file, text, why));
}

void take_name(const std::string& given, const Json& says, const std::string& file, NamesOfExperts& named) {
  if (given.find("experts") == std::string::npos) return;
  static const std::regex numbered(R"(experts\.(\d{1,6}))");
  const std::string text = without_escapes(given);
  std::smatch found;
  if (std::regex_search(text, found, numbered)) {
    const std::string pattern = found.prefix().str() + "experts.*" + found.suffix().str();
    NamedExperts& alike =
        named.try_emplace(pattern, NamedExperts{.texts = {}, .says = says.dump()}).first->second;
    if (alike.says != says.dump())
      refuse_expert(file, given,
                    fmt::format("names one expert, and its value {} differs from another expert's {}; give "
                                "all experts the same value",
                                says.dump(), alike.says));
    alike.texts.emplace(std::stoi(found[1]), given);
  } else if (may_pick_experts(text)) {
    throw Unsupported(
        fmt::format("{}: '{}' may match only some experts of a layer, which permuting would change; write "
                    "\\d+ or .* to match all experts",
                    file, given));
  }
}

}  // namespace

void require_all_or_no_experts(const Json& config, int num_experts, const std::string& file) {
  if (config.is_string()) return require_all_or_no_experts(Json::array({config}), num_experts, file);
  if (!config.is_structured()) return;
  NamesOfExperts named;
  for (const auto& [key, child] : config.items()) {
    const bool listed = config.is_array() && child.is_string();
    if (!listed) require_all_or_no_experts(child, num_experts, file);
    if (listed) take_name(child.get<std::string>(), Json(), file, named);
    if (config.is_object()) take_name(key, child, file, named);
  }
  for (const auto& [name, experts] : named) {
    for (int expert = 0; expert < num_experts; ++expert)
      if (!experts.texts.contains(expert))
        refuse_expert(
            file, experts.texts.begin()->second,
            fmt::format("names one expert, but expert {} has no such entry; name all {} experts, or none",
                        expert, num_experts));
    if (std::ssize(experts.texts) != num_experts)
      refuse_expert(file, experts.texts.rbegin()->second,
                    fmt::format("names expert {}, but the model has experts 0..{}",
                                experts.texts.rbegin()->first, num_experts - 1));
  }
}

CheckpointConfig read_checkpoint_config(const ByteSource& source) {
  const LanguageConfig config = read_language_config(source);
  const Family& family = family_of(config);
  const std::optional<int> layers = hidden_layers(config.keys);
  if (!layers) config.keys.fail("num_hidden_layers", "is missing");
  const int experts = num_experts(config.keys);
  if (experts == 0) config.keys.fail(family.weights ? family.weights->experts : "num_experts", "is missing");
  const std::optional<RoutingGroups> groups = routing_groups(config.keys, family, experts);
  if (!groups)
    config.keys.fail(
        "n_group",
        "is missing; {} chooses groups of experts first, so their number must be given (1 if there are none)",
        family.name());
  require_all_or_no_experts(config.file->json, experts, config.file->name);
  return {.family = &family, .num_layers = *layers, .num_experts = experts, .groups = *groups};
}

}  // namespace evenkeel::internal
