#include "evenkeel/io/internal/config_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "evenkeel/io/internal/layer_rules.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/model/family.h"
#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel::internal {

namespace {

constexpr std::array<std::string_view, 4> layer_count_keys = {"num_hidden_layers", "n_layers", "num_layers",
                                                              "n_layer"};
constexpr std::array<std::string_view, 5> mtp_count_keys = {"num_nextn_predict_layers",
                                                            "mtp_num_hidden_layers", "num_mtp_modules",
                                                            "num_mtp_layers", "mtp_num_layers"};
constexpr std::array<std::string_view, 3> expert_switches = {"enable_moe_block", "is_moe", "use_moe"};

// One number under several names, which agree.
template <class Read>
std::optional<int> agreed(const ConfigKeys& config, std::span<const std::string_view> keys,
                          const Read& read) {
  std::optional<int> value;
  std::string_view first;
  for (const std::string_view key : keys) {
    if (!config.is_there(key)) continue;
    const int stated = read(key);
    if (value && stated != *value)
      config.fail(key, "is {}, where {} is {}; right would be one number", stated, config.name(first),
                  *value);
    value = stated;
    first = key;
  }
  return value;
}

// A number, or a list of it for every layer or kind of experts.
int experts_of(const ConfigKeys& config, std::string_view key) {
  const Json& value = *config.find(key);
  if (!value.is_array()) return config.integer(key, 0, max_experts);
  const std::vector<std::int64_t> numbers = config.integers(key);
  if (numbers.empty() || std::ranges::any_of(numbers, [&](auto number) { return number != numbers[0]; }))
    config.fail(key, "lists different numbers of experts; a placement has one number for all layers");
  if (numbers[0] < 0 || numbers[0] > max_experts)
    config.fail(key, "lists {}, which is not in 0..{}", numbers[0], max_experts);
  return static_cast<int>(numbers[0]);
}

std::optional<int> stated_experts(const ConfigKeys& config) {
  return agreed(config, expert_count_keys, [&](std::string_view key) {
    const int experts = experts_of(config, key);
    if (experts < 2) config.fail(key, "is {}: no layer of this model has experts to place", experts);
    return experts;
  });
}

int mtp_layers(const ConfigKeys& config) {
  if (config.is_false("use_mtp")) return 0;
  return agreed(config, mtp_count_keys,
                [&](std::string_view key) { return config.integer(key, 0, max_layers); })
      .value_or(0);
}

// By whichever key says it alike in all layers.
int top_k(const ConfigKeys& config) {
  for (const std::string_view key :
       {"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts",
        "experts_per_token", "num_selected_experts", "moe_num_active_experts"})
    if (config.is_there(key) && !config.is_list(key)) return config.integer(key, 1, max_experts);
  return 0;
}

std::vector<int> numbers_of(const std::vector<bool>& flags, int count, int from) {
  std::vector<int> numbers;
  for (int layer = from; layer < from + count && layer < std::ssize(flags); ++layer)
    if (flags[static_cast<std::size_t>(layer)]) numbers.push_back(layer);
  return numbers;
}

std::string said_by(const std::vector<int>& layers) {
  return layers.empty() ? "no layer has" : fmt::format("layers {} have", to_text(LayerNumbers(layers)));
}

void require_agreement(const ConfigKeys& config, const std::vector<LayerRule>& rules, int hidden) {
  const std::vector<int> first = numbers_of(rules.front().has_experts, hidden, 0);
  for (const LayerRule& rule : rules) {
    const std::vector<int> other = numbers_of(rule.has_experts, hidden, 0);
    if (other == first) continue;
    throw parse_error(config.file(), rule.keys,
                      "says that {} experts, where {} says that {} them; right would be the same layers, "
                      "or one of the two keys",
                      said_by(other), rules.front().keys, said_by(first));
  }
}

void require_known(const ConfigKeys& config, const Family* family, bool states_rule) {
  for (const std::string_view key : expert_switches)
    if (config.is_false(key)) config.fail(key, "is false: no layer of this model has experts");
  if (states_rule || (family != nullptr && family->layers == Family::Layers::all)) return;
  const std::string type = config.word("model_type");
  config.fail("",
              "says that there are experts, but not in which layers{}; right would be one of "
              "first_k_dense_replace, decoder_sparse_step, moe_layer_freq, mlp_layer_types, moe_layers",
              type.empty() ? "" : fmt::format(" (model_type '{}')", type));
}

// Classes of some families have dense layers by default, and not the same in every version.
void require_first_dense(const ConfigKeys& config, const Family* family,
                         const std::vector<LayerRule>& rules) {
  if (family == nullptr || family->layers != Family::Layers::after_stated_dense) return;
  if (rules.size() == 1 && rules.front().keys == config.name("moe_layer_freq") &&
      !config.find("moe_layer_freq")->is_array())
    config.fail("first_k_dense_replace", "is missing, and has no one default for '{}'", family->name());
}

}  // namespace

std::optional<int> hidden_layers(const ConfigKeys& config) {
  const auto stated = agreed(config, layer_count_keys,
                             [&](std::string_view key) { return config.integer(key, 1, max_layers); });
  if (stated) return stated;
  const int listed = listed_layers(config);
  return listed > 0 && listed <= max_layers ? std::optional(listed) : std::nullopt;
}

int num_experts(const ConfigKeys& config) {
  if (const auto experts = stated_experts(config)) return *experts;
  const Json* inner = config.find("ffn_config");
  if (inner != nullptr && inner->is_object())
    if (const auto experts = stated_experts({*inner, config.file(), config.name("ffn_config.")}))
      return *experts;
  for (const std::string_view key : expert_count_keys)
    if (config.is_null(key)) config.fail(key, "is null: no layer of this model has experts to place");
  return 0;
}

bool speaks_of_experts(const ConfigKeys& config) {
  const auto is_there = [&](std::string_view key) { return config.is_there(key); };
  return std::ranges::any_of(expert_count_keys, is_there) || is_there("ffn_config") ||
         is_there("hybrid_override_pattern") || has_layer_rule(config);
}

ModelLayers layers_of(const ConfigKeys& config, const Family* family) {
  if (config.is_there("encoder_sparse_step"))
    config.fail("encoder_sparse_step",
                "is of a model with encoder and decoder, which number their layers each by itself");
  const std::optional<int> hidden = hidden_layers(config);
  if (!hidden) config.fail("num_hidden_layers", "is missing; known: {}", fmt::join(layer_count_keys, ", "));
  const int mtp = mtp_layers(config);
  std::vector<LayerRule> rules = layer_rules(config, {*hidden, mtp});
  require_known(config, family, !rules.empty());
  ModelLayers layers{
      .num_hidden_layers = *hidden, .num_experts = num_experts(config), .top_k = top_k(config)};
  if (rules.empty())
    rules.push_back({config.name("model_type"), std::vector<bool>(static_cast<std::size_t>(*hidden), true)});
  require_first_dense(config, family, rules);
  require_agreement(config, rules, *hidden);
  layers.moe_layers = numbers_of(rules.front().has_experts, *hidden, 0);
  if (layers.moe_layers.empty())
    throw parse_error(config.file(), rules.front().keys, "leaves no layer with experts among the model's {}",
                      *hidden);
  const std::vector<bool> by_table = table_rule(config, *hidden);
  std::ranges::copy_if(layers.moe_layers, std::back_inserter(layers.table_layers),
                       [&](int layer) { return by_table[static_cast<std::size_t>(layer)]; });
  const auto says_mtp = std::ranges::find_if(
      rules, [&](const LayerRule& rule) { return std::ssize(rule.has_experts) > *hidden; });
  std::vector<bool> flags(static_cast<std::size_t>(*hidden), false);
  const std::vector<bool> behind = mtp_rule(config, family, mtp);
  flags.insert(flags.end(), behind.begin(), behind.end());
  layers.mtp_layers = numbers_of(says_mtp == rules.end() ? flags : says_mtp->has_experts, mtp, *hidden);
  return layers;
}

}  // namespace evenkeel::internal
