#include "evenkeel/io/internal/layer_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using Flags = std::vector<bool>;

// A word for each layer's MLP.
constexpr std::string_view mlp_words = "mlp_layer_types";
// Of an MLP whose experts a table chooses.
constexpr std::string_view table_word = "hash_moe";
constexpr std::string_view pattern_key = "hybrid_override_pattern";
constexpr std::array<std::string_view, 3> ernie_keys = {"moe_layer_start_index", "moe_layer_end_index",
                                                        "moe_layer_interval"};

// Text and images have experts of their own; more than a few would only cost time.
constexpr std::size_t most_kinds = 8;

bool is_expert_word(std::string_view word) {
  return word == "sparse" || word == "moe" || word == table_word;
}

bool is_dense_word(std::string_view word) {
  return word == "dense" || word == "mlp";
}

// Lists of blocks speak of attention alone in most models.
bool names_mlp_blocks(const ConfigKeys& config, std::string_view key) {
  if (!config.is_list(key)) return false;
  return std::ranges::any_of(*config.find(key), [](const Json& value) {
    if (!value.is_string()) return false;
    const std::string word = value.get<std::string>();
    return is_expert_word(word) || is_dense_word(word);
  });
}

// Hidden layers, or those of multi-token prediction behind them.
void require_length(const ConfigKeys& config, std::string_view key, std::size_t length,
                    const LayerCounts& count) {
  const std::size_t hidden = static_cast<std::size_t>(count.hidden);
  const std::size_t all = hidden + static_cast<std::size_t>(count.mtp);
  if (length == hidden || length == all) return;
  config.fail(key, "says something of {} layers, where the model has {}{}; right would be {}", length,
              count.hidden, count.mtp > 0 ? fmt::format(" and {} of multi-token prediction", count.mtp) : "",
              count.mtp > 0 ? fmt::format("{} or {}", hidden, all) : fmt::format("{}", hidden));
}

Flags flags_of_words(const ConfigKeys& config, std::string_view key, bool only_mlps) {
  Flags flags;
  for (const std::string& word : config.words(key)) {
    if (only_mlps && !is_expert_word(word) && !is_dense_word(word))
      config.fail(key, "has the word '{}'; known: sparse, moe, hash_moe, dense, mlp", word);
    flags.push_back(is_expert_word(word));
  }
  return flags;
}

Flags flags_of_pattern(const ConfigKeys& config, std::string_view key) {
  const Json& value = *config.find(key);
  if (!value.is_string()) config.fail(key, "is a JSON {}, not a text", value.type_name());
  Flags flags;
  for (const char letter : value.get<std::string>()) {
    if (std::string_view("ME*-").find(letter) == std::string_view::npos)
      config.fail(key, "has a letter that is none of M, E, *, - (Mamba, experts, attention, MLP)");
    flags.push_back(letter == 'E');
  }
  return flags;
}

Flags flags_of_zeros_and_ones(const ConfigKeys& config, std::string_view key) {
  Flags flags;
  for (const Json& value : *config.find(key))
    flags.push_back(value.is_boolean()
                        ? value.get<bool>()
                        : JsonField(value, config.file(), config.name(key)).integer(0, 1) == 1);
  return flags;
}

// "3,4,5", as one family writes it.
std::vector<std::int64_t> numbers_in_text(const ConfigKeys& config, std::string_view key) {
  const std::string text = config.word(key);
  std::vector<std::int64_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end; ++at) {
    const auto [next, error] = std::from_chars(at, end, numbers.emplace_back());
    if (error != std::errc() || (next != end && *next != ','))
      config.fail(key, "is a text that is no list of layer numbers, as in \"3,4,5\"");
    at = next;
  }
  return numbers;
}

Flags flags_of_numbers(const ConfigKeys& config, std::string_view key, const LayerCounts& count) {
  Flags flags(static_cast<std::size_t>(count.hidden + count.mtp), false);
  const bool text = config.find(key)->is_string();
  bool names_mtp = false;
  for (const std::int64_t layer : text ? numbers_in_text(config, key) : config.integers(key)) {
    if (layer < 0 || layer >= std::ssize(flags))
      config.fail(key, "names layer {}, where the model has layers 0..{}", layer, std::ssize(flags) - 1);
    if (flags[static_cast<std::size_t>(layer)]) config.fail(key, "names layer {} twice", layer);
    flags[static_cast<std::size_t>(layer)] = true;
    names_mtp |= layer >= count.hidden;
  }
  if (!names_mtp) flags.resize(static_cast<std::size_t>(count.hidden));
  return flags;
}

// Collects the rules of one config.
class RuleReader {
 public:
  RuleReader(const ConfigKeys& config, const LayerCounts& count) : config_(config), count_(count) {}

  std::vector<LayerRule> read() {
    if (config_.is_there(mlp_words)) add_list(mlp_words, flags_of_words(config_, mlp_words, true));
    for (const std::string_view key : {"layers_block_type", "layer_types"})
      if (names_mlp_blocks(config_, key)) add_list(key, flags_of_words(config_, key, false));
    if (config_.is_there(pattern_key)) add_list(pattern_key, flags_of_pattern(config_, pattern_key));
    for (const std::string_view key : {"moe_layer_freq", "moe_layer_layout"})
      if (config_.is_list(key)) add_list(key, flags_of_zeros_and_ones(config_, key));
    for (const std::string_view key : {"moe_layers", "moe_layers_enum"})
      if (config_.is_there(key)) add_flags(key, flags_of_numbers(config_, key, count_));
    read_formulas();
    return std::move(rules_);
  }

 private:
  void read_formulas() {
    read_first_and_freq();
    if (config_.is_there("num_dense_layers")) {
      const int dense = config_.integer("num_dense_layers", 0, max_layers);
      add("num_dense_layers", [=](int layer) { return layer >= dense; });
    }
    for (const std::string_view key : {"interleave_moe_layer_step", "moe_layer_frequency"}) {
      if (!config_.is_there(key)) continue;
      const int step = config_.integer(key, 1, max_layers);
      add(std::string(key), [=](int layer) { return (layer + 1) % step == 0; });
    }
    if (config_.is_there("expert_layer_period") || config_.is_there("expert_layer_offset")) {
      const int period = config_.integer("expert_layer_period", 1, max_layers);
      const int offset = config_.integer("expert_layer_offset", 0, period - 1);
      add("expert_layer_period, expert_layer_offset", [=](int layer) { return layer % period == offset; });
    }
    read_sparse_step();
    read_ernie();
  }

  // DeepSeek and its descendants. As a list, moe_layer_freq is a rule of its own.
  void read_first_and_freq() {
    const std::string_view freq_key = config_.is_list("moe_layer_freq") ? "" : "moe_layer_freq";
    const std::string keys = stated({"first_k_dense_replace", freq_key});
    if (keys.empty()) return;
    const int first = config_.integer_or("first_k_dense_replace", 0, max_layers, 0);
    const int freq = freq_key.empty() ? 1 : config_.integer_or(freq_key, 1, max_layers, 1);
    add(keys, [=](int layer) { return layer >= first && layer % freq == 0; });
  }

  // Qwen.
  void read_sparse_step() {
    constexpr std::string_view dense_key = "mlp_only_layers";
    const std::string keys = stated({"decoder_sparse_step", dense_key});
    if (keys.empty()) return;
    const int step = config_.integer_or("decoder_sparse_step", 1, max_layers, 1);
    Flags dense(static_cast<std::size_t>(count_.hidden), false);
    for (const std::int64_t layer :
         config_.is_there(dense_key) ? config_.integers(dense_key) : std::vector<std::int64_t>()) {
      if (layer < 0 || layer >= count_.hidden)
        config_.fail(dense_key, "names layer {}, where the model has layers 0..{}", layer, count_.hidden - 1);
      dense[static_cast<std::size_t>(layer)] = true;
    }
    add(keys, [=](int layer) { return (layer + 1) % step == 0 && !dense[static_cast<std::size_t>(layer)]; });
  }

  // Ernie 4.5. Its models of text and images have a number for each kind of experts.
  void read_ernie() {
    std::size_t kinds = 0;
    for (const std::string_view key : ernie_keys)
      if (config_.is_list(key)) kinds = std::max(kinds, config_.find(key)->size());
    if (kinds > most_kinds)
      config_.fail(ernie_keys[0], "and its like are of {} kinds of experts; allowed: 1..{}", kinds,
                   most_kinds);
    if (std::ranges::none_of(ernie_keys, [&](auto key) { return config_.is_there(key); })) return;
    // Left out, it is 0 for some readers and 1 for others.
    if (!config_.is_there("moe_layer_start_index")) config_.fail("moe_layer_start_index", "is missing");
    for (std::size_t kind = 0; kind < std::max<std::size_t>(kinds, 1); ++kind) {
      const int start = of_kind("moe_layer_start_index", kind, 0, 0);
      const int stated_end = of_kind("moe_layer_end_index", kind, -1, -1);
      const int end = stated_end == -1 ? count_.hidden - 1 : stated_end;
      const int interval = of_kind("moe_layer_interval", kind, 1, 1);
      const std::string keys = "moe_layer_start_index, moe_layer_end_index, moe_layer_interval";
      add(kinds == 0 ? keys : fmt::format("{} (number {} of each list)", keys, kind),
          [=](int layer) { return (layer + 1) % interval == 0 && layer >= start && layer <= end; });
    }
  }

  int of_kind(std::string_view key, std::size_t kind, int least, int absent) const {
    if (!config_.is_list(key)) return config_.integer_or(key, least, max_layers, absent);
    const Json& numbers = *config_.find(key);
    if (kind >= numbers.size())
      config_.fail(key, "has {} numbers, where another of its keys has more", numbers.size());
    return config_.element(key, kind).integer(least, max_layers);
  }

  // Those of the keys that are there, between commas.
  std::string stated(std::initializer_list<std::string_view> keys) const {
    std::string names;
    for (const std::string_view key : keys)
      if (!key.empty() && config_.is_there(key)) names.append(names.empty() ? "" : ", ").append(key);
    return names;
  }

  void add_list(std::string_view key, Flags flags) {
    require_length(config_, key, flags.size(), count_);
    add_flags(key, std::move(flags));
  }
  void add_flags(std::string_view key, Flags flags) {
    rules_.push_back({config_.name(key), std::move(flags)});
  }
  void add(const std::string& keys, const std::function<bool(int)>& has_experts) {
    Flags flags;
    for (int layer = 0; layer < count_.hidden; ++layer) flags.push_back(has_experts(layer));
    add_flags(keys, std::move(flags));
  }

  const ConfigKeys& config_;
  const LayerCounts count_;
  std::vector<LayerRule> rules_;
};

}  // namespace

bool has_layer_rule(const ConfigKeys& config) {
  constexpr std::array<std::string_view, 13> keys = {
      "mlp_layer_types",          "moe_layer_freq",      "moe_layer_layout",
      "moe_layer_frequency",      "moe_layers",          "moe_layers_enum",
      "first_k_dense_replace",    "num_dense_layers",    "expert_layer_period",
      "moe_layer_start_index",    "decoder_sparse_step", "mlp_only_layers",
      "interleave_moe_layer_step"};
  return std::ranges::any_of(keys, [&](auto key) { return config.is_there(key); });
}

int listed_layers(const ConfigKeys& config) {
  std::size_t length = 0;
  if (config.is_list("layers_block_type"))
    length = config.find("layers_block_type")->size();
  else if (config.is_there(pattern_key))
    length = config.word(pattern_key).size();
  return static_cast<int>(std::min<std::size_t>(length, max_layers + 1));
}

std::vector<LayerRule> layer_rules(const ConfigKeys& config, const LayerCounts& count) {
  return RuleReader(config, count).read();
}

std::vector<bool> table_rule(const ConfigKeys& config, int num_layers) {
  Flags flags;
  if (config.is_list(mlp_words)) {
    for (const std::string& word : config.words(mlp_words)) flags.push_back(word == table_word);
  } else {
    flags.assign(static_cast<std::size_t>(config.integer_or("num_hash_layers", 0, max_layers, 0)), true);
  }
  flags.resize(static_cast<std::size_t>(num_layers), false);
  return flags;
}

std::vector<bool> mtp_rule(const ConfigKeys& config, const Family* family, int num_mtp_layers) {
  const std::size_t count = static_cast<std::size_t>(num_mtp_layers);
  if (config.is_list("mtp_mlp_layer_types")) {
    const Flags flags = flags_of_words(config, "mtp_mlp_layer_types", true);
    if (flags.size() != count)
      config.fail("mtp_mlp_layer_types",
                  "says something of {} layers, where the model has {} of multi-token prediction",
                  flags.size(), count);
    return flags;
  }
  // Blocks that make up one layer of multi-token prediction together.
  std::optional<Flags> blocks;
  if (config.is_list("mtp_layers_block_type"))
    blocks = flags_of_words(config, "mtp_layers_block_type", false);
  if (config.is_there("mtp_hybrid_override_pattern"))
    blocks = flags_of_pattern(config, "mtp_hybrid_override_pattern");
  if (blocks) return Flags(count, std::ranges::find(*blocks, true) != blocks->end());
  return Flags(count, family == nullptr || !family->dense_prediction);
}

}  // namespace evenkeel::internal
