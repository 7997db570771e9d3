#include "evenkeel/io/internal/language_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>

#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel::internal {

namespace {

using Flags = std::vector<bool>;

constexpr std::array<std::string_view, 4> layer_count_keys = {"num_hidden_layers", "n_layers", "num_layers",
                                                              "n_layer"};
constexpr std::array<std::string_view, 5> mtp_count_keys = {"num_nextn_predict_layers",
                                                            "mtp_num_hidden_layers", "num_mtp_modules",
                                                            "num_mtp_layers", "mtp_num_layers"};
constexpr std::array<std::string_view, 3> expert_switches = {"enable_moe_block", "is_moe", "use_moe"};

// Keys of lists with an element for each layer.
constexpr std::string_view network_list = "mlp_layer_types";
constexpr std::array<std::string_view, 2> block_lists = {"layers_block_type", "layer_types"};
constexpr std::string_view block_pattern = "hybrid_override_pattern";
constexpr std::array<std::string_view, 2> flag_lists = {"moe_layer_freq", "moe_layer_layout"};
// Keys of lists that give the numbers of the layers with experts.
constexpr std::array<std::string_view, 2> number_lists = {"moe_layers", "moe_layers_enum"};

// Words for a layer's network, and whether they mean experts.
constexpr std::string_view table_word = "hash_moe";
const KnownWords<bool> network_words = {
    {"sparse", true}, {"moe", true}, {table_word, true}, {"dense", false}, {"mlp", false}};
// Letters for Mamba, experts, attention and a dense network.
const KnownWords<bool> block_letters = {{"M", false}, {"E", true}, {"*", false}, {"-", false}};

// The keys of a formula: layer i has experts if first <= i <= last (-1: the last of all) and i mod step =
// remainder, unless `dense` lists it.
struct Formula {
  std::string_view first = {};
  std::string_view last = {};
  std::string_view step = {};
  std::string_view remainder = {};
  std::string_view dense = {};
  std::string_view needed = {};  // a required key, since programs differ in its default
  bool from_one = false;         // without a key for the remainder: layers are counted from 1
  bool by_kind = false;  // values may be lists, with a number for text experts and one for image experts

  std::vector<std::string_view> stated(const ConfigKeys& config) const {
    std::vector<std::string_view> keys = {first, last, step, remainder, dense};
    // As a list, moe_layer_freq is a separate rule (flag_lists).
    std::erase_if(keys, [&](std::string_view key) {
      return !config.is_there(key) || (key == flag_lists[0] && config.is_list(key));
    });
    return keys;
  }
};
const std::array<Formula, 7> formulas = {{
    {.first = "first_k_dense_replace", .step = "moe_layer_freq"},
    {.first = "num_dense_layers"},
    {.step = "interleave_moe_layer_step", .from_one = true},
    {.step = "moe_layer_frequency", .from_one = true},
    {.step = "expert_layer_period", .remainder = "expert_layer_offset", .needed = "expert_layer_period"},
    {.step = "decoder_sparse_step", .dense = "mlp_only_layers", .from_one = true},
    {.first = "moe_layer_start_index",
     .last = "moe_layer_end_index",
     .step = "moe_layer_interval",
     .needed = "moe_layer_start_index",
     .from_one = true,
     .by_kind = true},
}};
// Limit on kinds of experts; it bounds the work for a damaged file.
constexpr std::size_t most_kinds = 8;

struct LayerCounts {
  int hidden = 0;
  int mtp = 0;  // of multi-token prediction
};

struct LayerRule {
  std::string keys;  // as named in the file
  // For the hidden layers, then for those of multi-token prediction if the rule covers them.
  Flags has_experts;
};

// One number that may have several keys. Throws if they disagree.
template <class Read>
std::optional<int> agreed(const ConfigKeys& config, std::span<const std::string_view> keys,
                          const Read& read) {
  std::optional<int> value;
  std::string_view first;
  for (const std::string_view key : keys) {
    if (!config.is_there(key)) continue;
    const int stated = read(key);
    if (value && stated != *value)
      config.fail(key, "is {}, but {} is {}; both must be the same number", stated, config.name(first),
                  *value);
    value = stated;
    first = key;
  }
  return value;
}

std::optional<int> stated_experts(const ConfigKeys& config) {
  return agreed(config, expert_count_keys, [&](std::string_view key) {
    const int experts = config.same_integer(key, 0, max_experts);
    if (experts < 2) config.fail(key, "is {}: no layer of this model has experts to place", experts);
    return experts;
  });
}

// With `among_blocks`, other words are allowed and mean layers without experts.
Flags flags_of_words(const ConfigKeys& config, std::string_view key, bool among_blocks) {
  return config.meanings<bool>(key, config.words(key), network_words,
                               among_blocks ? std::optional(false) : std::nullopt);
}

// Whether a list of blocks names networks; in most models it names only kinds of attention.
bool names_networks(const ConfigKeys& config, std::string_view key) {
  return config.is_list(key) && std::ranges::any_of(*config.at(key), [](const Json& word) {
           return std::ranges::any_of(network_words, [&](const auto& known) { return word == known.first; });
         });
}

Flags flags_of_letters(const ConfigKeys& config, std::string_view key) {
  return config.meanings<bool>(key, config.letters(key), block_letters);
}

Flags flags_of_flags(const ConfigKeys& config, std::string_view key) {
  Flags flags;
  const JsonField list = config.at(key);
  for (std::size_t i = 0; i < list->size(); ++i)
    flags.push_back(list[i]->is_boolean() ? list[i]->get<bool>() : list[i].integer(0, 1) == 1);
  return flags;
}

// The numbers in a list, or in a text such as "3,4,5", which one family uses.
std::vector<std::int64_t> listed_numbers(const ConfigKeys& config, std::string_view key) {
  const JsonField value = config.at(key);
  if (!value->is_string()) return value.integers();
  const Json list = Json::parse("[" + value->get<std::string>() + "]", nullptr, false);
  if (list.is_discarded()) value.fail("is not a list of layer numbers, as in \"3,4,5\"");
  return JsonField(list, config.file(), value.key()).integers();
}

// If only hidden layers are listed, the flags cover only hidden layers.
Flags flags_of_numbers(const ConfigKeys& config, std::string_view key,
                       const std::vector<std::int64_t>& numbers, const LayerCounts& count) {
  Flags flags(static_cast<std::size_t>(count.hidden + count.mtp), false);
  bool names_mtp = false;
  for (const std::int64_t layer : numbers) {
    if (layer < 0 || layer >= std::ssize(flags))
      config.fail(key, "names layer {}, but the model has layers 0..{}", layer, std::ssize(flags) - 1);
    if (flags[static_cast<std::size_t>(layer)]) config.fail(key, "names layer {} twice", layer);
    flags[static_cast<std::size_t>(layer)] = true;
    names_mtp |= layer >= count.hidden;
  }
  if (!names_mtp) flags.resize(static_cast<std::size_t>(count.hidden));
  return flags;
}

// The length must be the number of hidden layers, or that number plus the layers of multi-token prediction.
void require_length(const ConfigKeys& config, std::string_view key, std::size_t length,
                    const LayerCounts& count) {
  const std::size_t hidden = static_cast<std::size_t>(count.hidden);
  const std::size_t all = hidden + static_cast<std::size_t>(count.mtp);
  if (length == hidden || length == all) return;
  config.fail(key, "has entries for {} layers, but the model has {}{}; right would be {}", length,
              count.hidden, count.mtp > 0 ? fmt::format(" and {} of multi-token prediction", count.mtp) : "",
              count.mtp > 0 ? fmt::format("{} or {}", hidden, all) : fmt::format("{}", hidden));
}

void add_formula(const ConfigKeys& config, const Formula& formula, int hidden,
                 std::vector<LayerRule>& rules) {
  const std::vector<std::string_view> keys = formula.stated(config);
  if (keys.empty()) return;
  if (!formula.needed.empty()) config.at(formula.needed);
  std::size_t kinds = 0;
  for (const std::string_view key : keys)
    if (formula.by_kind && config.is_list(key)) kinds = std::max(kinds, config.at(key)->size());
  if (kinds > most_kinds)
    config.fail(keys.front(), "lists {} kinds of experts; allowed: 1..{}", kinds, most_kinds);
  Flags dense(static_cast<std::size_t>(hidden), false);
  if (config.is_there(formula.dense))
    dense = flags_of_numbers(config, formula.dense, config.at(formula.dense).integers(), {hidden, 0});
  for (std::size_t kind = 0; kind < std::max<std::size_t>(kinds, 1); ++kind) {
    const auto number = [&](std::string_view key, int least, int absent) {
      if (std::ranges::find(keys, key) == keys.end()) return absent;
      if (!formula.by_kind || !config.is_list(key)) return config.integer(key, least, max_layers);
      const JsonField list = config.at(key);
      if (kind >= list->size())
        list.fail("has {} numbers, but the longest of the lists {} has {}", list->size(),
                  fmt::join(keys, ", "), kinds);
      return list[kind].integer(least, max_layers);
    };
    const int first = number(formula.first, 0, 0);
    const int last = number(formula.last, -1, -1);
    const int step = number(formula.step, 1, 1);
    const int remainder = !formula.remainder.empty() ? config.integer(formula.remainder, 0, step - 1)
                          : formula.from_one         ? step - 1
                                                     : 0;
    Flags flags;
    for (int layer = 0; layer < hidden; ++layer)
      flags.push_back(layer >= first && (last == -1 || layer <= last) && layer % step == remainder &&
                      !dense[static_cast<std::size_t>(layer)]);
    const std::string of_kind = kinds > 0 ? fmt::format(" (number {} of each list)", kind) : "";
    rules.push_back({config.name(fmt::format("{}{}", fmt::join(keys, ", "), of_kind)), std::move(flags)});
  }
}

// Every rule of the config. Throws ParseError if a required key is missing, a number or word is not allowed,
// or a list has a wrong length.
std::vector<LayerRule> layer_rules(const ConfigKeys& config, const LayerCounts& count) {
  std::vector<LayerRule> rules;
  const auto add = [&](std::string_view key, Flags flags) {
    require_length(config, key, flags.size(), count);
    rules.push_back({config.name(key), std::move(flags)});
  };
  if (config.is_there(network_list)) add(network_list, flags_of_words(config, network_list, false));
  for (const std::string_view key : block_lists)
    if (names_networks(config, key)) add(key, flags_of_words(config, key, true));
  if (config.is_there(block_pattern)) add(block_pattern, flags_of_letters(config, block_pattern));
  for (const std::string_view key : flag_lists)
    if (config.is_list(key)) add(key, flags_of_flags(config, key));
  for (const std::string_view key : number_lists)
    if (config.is_there(key)) add(key, flags_of_numbers(config, key, listed_numbers(config, key), count));
  for (const Formula& formula : formulas) add_formula(config, formula, count.hidden, rules);
  return rules;
}

// Which layers of multi-token prediction have experts, if the rules do not cover them.
Flags mtp_flags(const ConfigKeys& config, const Family* family, int num_layers) {
  const std::size_t count = static_cast<std::size_t>(num_layers);
  if (config.is_list("mtp_mlp_layer_types")) {
    const Flags flags = flags_of_words(config, "mtp_mlp_layer_types", false);
    if (flags.size() != count)
      config.fail("mtp_mlp_layer_types",
                  "has entries for {} layers, but the model has {} layers of multi-token prediction",
                  flags.size(), count);
    return flags;
  }
  // These blocks together make one layer of multi-token prediction.
  std::optional<Flags> blocks;
  if (config.is_list("mtp_layers_block_type")) blocks = flags_of_words(config, "mtp_layers_block_type", true);
  if (config.is_there("mtp_hybrid_override_pattern"))
    blocks = flags_of_letters(config, "mtp_hybrid_override_pattern");
  if (blocks) return Flags(count, std::ranges::find(*blocks, true) != blocks->end());
  return Flags(count, family == nullptr || !family->dense_prediction);
}

std::vector<int> numbers_of(const Flags& flags, int count, int from) {
  std::vector<int> numbers;
  for (int layer = from; layer < from + count && layer < std::ssize(flags); ++layer)
    if (flags[static_cast<std::size_t>(layer)]) numbers.push_back(layer);
  return numbers;
}

// The hidden layers whose experts are chosen by a table of tokens.
std::vector<int> table_layers(const ConfigKeys& config, int hidden) {
  Flags flags(static_cast<std::size_t>(config.integer_or("num_hash_layers", 0, max_layers, 0)), true);
  if (config.is_list(network_list))
    flags = config.meanings<bool>(network_list, config.words(network_list), {{table_word, true}}, false);
  return numbers_of(flags, hidden, 0);
}

std::string said_by(const std::vector<int>& layers) {
  return layers.empty() ? "no layer has" : fmt::format("layers {} have", to_text(LayerNumbers(layers)));
}

void require_agreement(const ConfigKeys& config, const std::vector<LayerRule>& rules, int hidden) {
  const std::vector<int> first = numbers_of(rules.front().has_experts, hidden, 0);
  for (const LayerRule& rule : rules) {
    const std::vector<int> other = numbers_of(rule.has_experts, hidden, 0);
    if (other == first) continue;
    throw parse_error(
        config.file(), rule.keys,
        "says that {} experts, but {} says that {} experts; make them agree, or leave out one of the keys",
        said_by(other), rules.front().keys, said_by(first));
  }
}

void require_known(const ConfigKeys& config, const Family* family, const std::vector<LayerRule>& rules) {
  for (const std::string_view key : expert_switches)
    if (config.is_false(key)) config.fail(key, "is false: no layer of this model has experts");
  if (rules.empty() && (family == nullptr || family->layers != Family::Layers::all)) {
    const std::string type = config.word("model_type");
    config.fail("",
                "says that there are experts, but not in which layers{}; right would be one of "
                "first_k_dense_replace, decoder_sparse_step, moe_layer_freq, mlp_layer_types, moe_layers",
                type.empty() ? "" : fmt::format(" (model_type '{}')", type));
  }
  // Some families' classes have dense layers by default, and the default differs between versions.
  if (family != nullptr && family->layers == Family::Layers::after_stated_dense && rules.size() == 1 &&
      rules.front().keys == config.name("moe_layer_freq") && !config.is_list("moe_layer_freq"))
    config.fail("first_k_dense_replace", "is missing, and versions of '{}' have different defaults for it",
                family->name());
}

// Keys of a language model's config inside another model's config.
constexpr std::array<std::string_view, 4> language_models = {"text_config", "language_config", "llm_config",
                                                             "thinker_config"};

void collect(const ConfigKeys& config, int depth, std::vector<ConfigKeys>& all) {
  all.push_back(config);
  if (depth == 0) return;
  for (const std::string_view key : language_models)
    if (const auto inner = config.find(key); inner && (*inner)->is_object())
      collect(ConfigKeys(*inner), depth - 1, all);
}

}  // namespace

std::vector<std::string> architectures_of(const ConfigKeys& config) {
  return config.is_there("architectures") ? config.words("architectures") : std::vector<std::string>();
}

LanguageConfig read_language_config(const ByteSource& source) {
  const ByteSource config = source.is_folder()
                                ? ByteSource((std::filesystem::path(source.name()) / "config.json").string())
                                : source;
  require_json(config, "a model's config");
  const auto file = std::make_shared<const ConfigFile>(config.name(), read_config_json(config));
  if (!file->json.is_object()) throw ParseError(file->name, "", "is not a JSON object");
  const ConfigKeys whole({file->json, file->name});
  LanguageConfig found{.file = file, .nested = {}, .whole = whole, .keys = whole};
  collect(whole, 2, found.nested);
  const auto counted = std::ranges::find_if(
      found.nested, [](const ConfigKeys& each) { return hidden_layers(each).has_value(); });
  if (counted != found.nested.end()) found.keys = *counted;
  // A known model type decides. Otherwise an architecture decides, for models that only rename another one.
  for (const ConfigKeys& each : {found.keys, found.whole}) {
    const std::string type = each.word("model_type");
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

bool speaks_of_experts(const ConfigKeys& config) {
  const auto is_there = [&](std::string_view key) { return config.is_there(key); };
  return std::ranges::any_of(expert_count_keys, is_there) || is_there("ffn_config") ||
         is_there(network_list) || is_there(block_pattern) || std::ranges::any_of(flag_lists, is_there) ||
         std::ranges::any_of(number_lists, is_there) ||
         std::ranges::any_of(formulas, [&](const Formula& each) { return !each.stated(config).empty(); });
}

std::optional<int> hidden_layers(const ConfigKeys& config) {
  const auto stated = agreed(config, layer_count_keys,
                             [&](std::string_view key) { return config.integer(key, 1, max_layers); });
  if (stated) return stated;
  const std::size_t listed =
      config.is_list(block_lists[0]) ? config.at(block_lists[0])->size() : config.word(block_pattern).size();
  return listed > 0 && listed <= max_layers ? std::optional(static_cast<int>(listed)) : std::nullopt;
}

int num_experts(const ConfigKeys& config) {
  if (const auto experts = stated_experts(config)) return *experts;
  if (const auto inner = config.find("ffn_config"))
    if (const auto experts = stated_experts(ConfigKeys(*inner))) return *experts;
  for (const std::string_view key : expert_count_keys)
    if (config.is_null(key)) config.fail(key, "is null: no layer of this model has experts to place");
  return 0;
}

int prediction_layers(const ConfigKeys& config) {
  if (config.is_false("use_mtp")) return 0;
  const auto count = [&](std::string_view key) { return config.integer(key, 0, max_layers); };
  return agreed(config, mtp_count_keys, count).value_or(0);
}

int top_k(const ConfigKeys& config) {
  for (const std::string_view key :
       {"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts",
        "experts_per_token", "num_selected_experts", "moe_num_active_experts"})
    if (config.is_there(key) && !config.is_list(key)) return config.integer(key, 1, max_experts);
  return 0;
}

std::optional<RoutingGroups> routing_groups(const ConfigKeys& config, const Family& family, int num_experts) {
  if (family.groups == Family::Groups::unless_greedy && config.word("topk_method") == "greedy")
    return RoutingGroups{};
  const auto either = [&](const char* key, const char* other) {
    return config.is_there(key) || !config.is_there(other) ? key : other;
  };
  const char* const count = either("n_group", "num_expert_group");
  if (!config.is_there(count)) {
    const bool is_stated = config.find("n_group") || config.find("num_expert_group");
    if (!is_stated && family.groups == Family::Groups::always_stated) return std::nullopt;
    return RoutingGroups{};
  }
  RoutingGroups groups;
  groups.count = config.integer(count, 1, num_experts);
  groups.chosen = config.integer_or(either("topk_group", "topk_groups"), 1, groups.count, groups.count);
  if (num_experts % groups.count != 0)
    config.fail(count, "{} experts cannot be divided evenly into {} groups", num_experts, groups.count);
  return groups;
}

ModelLayers layers_of(const ConfigKeys& config, const Family* around) {
  const Family* const own = known_family(config.word("model_type"));
  const Family* const family = own != nullptr ? own : around;
  if (config.is_there("encoder_sparse_step"))
    config.fail("encoder_sparse_step",
                "belongs to a model with an encoder and a decoder; such models are not supported");
  const std::optional<int> hidden = hidden_layers(config);
  if (!hidden)
    config.fail("num_hidden_layers", "is missing; the config needs one of the keys {}",
                fmt::join(layer_count_keys, ", "));
  const int mtp = prediction_layers(config);
  std::vector<LayerRule> rules = layer_rules(config, {*hidden, mtp});
  require_known(config, family, rules);
  if (rules.empty())
    rules.push_back({config.name("model_type"), Flags(static_cast<std::size_t>(*hidden), true)});
  require_agreement(config, rules, *hidden);
  ModelLayers layers{.num_hidden_layers = *hidden,
                     .moe_layers = numbers_of(rules.front().has_experts, *hidden, 0),
                     .num_mtp_layers = mtp,
                     .num_experts = num_experts(config),
                     .top_k = top_k(config)};
  if (layers.moe_layers.empty())
    throw parse_error(config.file(), rules.front().keys, "gives experts to none of the model's {} layers",
                      *hidden);
  std::ranges::set_intersection(layers.moe_layers, table_layers(config, *hidden),
                                std::back_inserter(layers.table_layers));
  const auto says_mtp = std::ranges::find_if(
      rules, [&](const LayerRule& rule) { return std::ssize(rule.has_experts) > *hidden; });
  Flags flags(static_cast<std::size_t>(*hidden), false);
  std::ranges::copy(mtp_flags(config, family, mtp), std::back_inserter(flags));
  layers.mtp_layers = numbers_of(says_mtp == rules.end() ? flags : says_mtp->has_experts, mtp, *hidden);
  return layers;
}

}  // namespace evenkeel::internal
