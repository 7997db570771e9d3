#include "evenkeel/io/internal/layer_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using Mixer = LayerParts::Mixer;

class LayerReader {
 public:
  LayerReader(const ConfigKeys& keys, const WeightRule& rule, ModelDescription& model)
      : keys_(keys), rule_(rule), model_(model) {}

  void read() {
    const AttentionRule& attention = rule_.attention;
    const bool unlike = rule_.mamba || rule_.delta || rule_.one_block || attention.indexer ||
                        attention.wide_layers || model_.attention.compressed;
    if (!unlike) return;
    model_.layers.assign(static_cast<std::size_t>(model_.num_layers), {});
    if (rule_.delta) model_.delta = delta();
    if (attention.indexer) read_indexers();
    if (attention.wide_layers) read_wide_layers();
    if (model_.attention.compressed) read_compressed_layers();
    if (rule_.one_block)
      read_blocks();
    else if (rule_.mamba || rule_.delta)
      read_linear_layers();
    const auto is_mamba = [](const LayerParts& parts) { return parts.mixer == Mixer::mamba; };
    if (std::ranges::any_of(model_.layers, is_mamba)) model_.mamba = mamba(*rule_.mamba);
  }

 private:
  std::int64_t width(std::string_view key) const { return keys_.integer(key, 1, max_width); }

  // One word for each layer.
  std::vector<std::string> layer_words(std::string_view key) const {
    std::vector<std::string> words = keys_.words(key);
    if (std::ssize(words) != model_.num_layers)
      keys_.fail(key, "says something of {} layers, where the model has {}", words.size(), model_.num_layers);
    return words;
  }

  // The meaning of each layer's word.
  template <class Meaning>
  std::vector<Meaning> meanings(std::string_view key,
                                const std::vector<std::pair<std::string_view, Meaning>>& known) const {
    std::vector<Meaning> all;
    for (const std::string& word : layer_words(key)) {
      const auto found = std::ranges::find(known, word, &std::pair<std::string_view, Meaning>::first);
      if (found == known.end())
        keys_.fail(key, "has the word '{}'; known: {}", word, fmt::join(known | std::views::keys, ", "));
      all.push_back(found->second);
    }
    return all;
  }

  // Which layers are linear: by a list, or all but every so many-th.
  void read_linear_layers() {
    const Mixer linear = rule_.delta ? Mixer::delta : Mixer::mamba;
    const std::string_view list = keys_.is_there("layer_types") ? "layer_types" : "layers_block_type";
    if (keys_.is_there(list)) {
      const auto mixers = meanings<Mixer>(list, {{"linear_attention", linear},
                                                 {"mamba", linear},
                                                 {"full_attention", Mixer::attention},
                                                 {"attention", Mixer::attention}});
      for (std::size_t layer = 0; layer < mixers.size(); ++layer) model_.layers[layer].mixer = mixers[layer];
      return;
    }
    if (!rule_.delta) keys_.fail("layer_types", "is missing");
    const int every = keys_.integer_or("full_attention_interval", 1, max_layers, 4);
    for (std::size_t layer = 0; layer < model_.layers.size(); ++layer)
      if ((layer + 1) % static_cast<std::size_t>(every) != 0) model_.layers[layer].mixer = linear;
  }

  // Layers that are one block each: "linear_attention", "moe", "full_attention", "mlp", or a letter of a
  // pattern for each.
  void read_blocks() {
    constexpr std::string_view pattern_key = "hybrid_override_pattern";
    std::vector<std::string> words;
    if (keys_.is_there("layers_block_type"))
      words = layer_words("layers_block_type");
    else
      for (const char letter : keys_.word(pattern_key)) words.emplace_back(1, letter);
    if (std::ssize(words) != model_.num_layers)
      keys_.fail("layers_block_type",
                 "is missing, and {} says something of {} layers, where the model has {}", pattern_key,
                 words.size(), model_.num_layers);
    constexpr std::array<std::string_view, 3> mamba = {"linear_attention", "mamba", "M"};
    constexpr std::array<std::string_view, 3> attention = {"full_attention", "attention", "*"};
    constexpr std::array<std::string_view, 4> network = {"moe", "mlp", "E", "-"};
    const auto is_one_of = [](const std::string& word, const auto& known) {
      return std::ranges::find(known, word) != known.end();
    };
    for (std::size_t layer = 0; layer < words.size(); ++layer) {
      LayerParts& parts = model_.layers[layer];
      parts.network = is_one_of(words[layer], network);
      parts.mixer = is_one_of(words[layer], mamba)       ? Mixer::mamba
                    : is_one_of(words[layer], attention) ? Mixer::attention
                                                         : Mixer::none;
      if (!parts.network && parts.mixer == Mixer::none)
        keys_.fail("layers_block_type", "has the word '{}'", words[layer]);
    }
  }

  // Layers that choose again what is attended to; the others take the choice of the layer before.
  void read_indexers() {
    model_.indexer = AttentionIndexer{.heads = keys_.integer("index_n_heads", 1, max_heads),
                                      .head_dim = width("index_head_dim")};
    for (LayerParts& parts : model_.layers) parts.indexer = true;
    if (!keys_.is_there("indexer_types")) {
      if (keys_.is_there("index_topk_pattern") || keys_.integer_or("index_topk_freq", 1, max_layers, 1) != 1)
        keys_.fail("indexer_types", "is missing, where other keys say that layers share their indexers");
      return;
    }
    const auto full = meanings<bool>("indexer_types", {{"full", true}, {"shared", false}});
    for (std::size_t layer = 0; layer < full.size(); ++layer) model_.layers[layer].indexer = full[layer];
  }

  // DeepSeek-V4: layers compress keys or not, and the first route by a table.
  void read_compressed_layers() {
    model_.indexer = AttentionIndexer{.heads = keys_.integer("index_n_heads", 1, max_heads),
                                      .head_dim = width("index_head_dim")};
    const std::vector<LayerParts::Compression> kinds = compression_of_layers();
    const auto tables = static_cast<std::size_t>(keys_.integer_or("num_hash_layers", 0, max_layers, 3));
    std::vector<std::string> networks;
    if (keys_.is_there("mlp_layer_types")) networks = layer_words("mlp_layer_types");
    for (std::size_t layer = 0; layer < model_.layers.size(); ++layer) {
      model_.layers[layer].compression = kinds[layer];
      model_.layers[layer].router_table = networks.empty() ? layer < tables : networks[layer] == "hash_moe";
    }
  }

  // By a word for each layer, or by how many tokens make a key; that list may go on to layers of prediction.
  std::vector<LayerParts::Compression> compression_of_layers() const {
    using Compression = LayerParts::Compression;
    if (keys_.is_there("layer_types"))
      return meanings<Compression>("layer_types", {{"sliding_attention", Compression::none},
                                                   {sparse_layer, Compression::sparse},
                                                   {heavy_layer, Compression::heavy}});
    std::vector<Compression> kinds;
    if (!keys_.is_there("compress_ratios")) keys_.fail("layer_types", "is missing");
    const CompressedAttention& rates = *model_.attention.compressed;
    for (const std::int64_t ratio : keys_.integers("compress_ratios")) {
      if (ratio != 0 && ratio != rates.sparse_rate && ratio != rates.heavy_rate)
        keys_.fail("compress_ratios", "has {}; known: 0, {}, {}", ratio, rates.sparse_rate, rates.heavy_rate);
      kinds.push_back(ratio == 0                   ? Compression::none
                      : ratio == rates.sparse_rate ? Compression::sparse
                                                   : Compression::heavy);
    }
    if (std::ssize(kinds) < model_.num_layers)
      keys_.fail("compress_ratios", "says something of {} layers, where the model has {}", kinds.size(),
                 model_.num_layers);
    return kinds;
  }

  // Gemma 4: layers with full attention have wider heads, fewer of keys, and may take keys for values.
  void read_wide_layers() {
    const std::vector<std::string> words = layer_words("layer_types");
    AttentionShape wide = model_.attention;
    wide.values_are_keys = keys_.flag("attention_k_eq_v", false);
    read_wide_shape(words, wide);
    const auto mixers = meanings<Mixer>(
        "layer_types", {{"full_attention", Mixer::wide_attention}, {"sliding_attention", Mixer::attention}});
    for (std::size_t layer = 0; layer < mixers.size(); ++layer) model_.layers[layer].mixer = mixers[layer];
    model_.wide_attention = wide;
  }

  // The objects of per_layer_config. Their keys are numbers of layers, with zeros before short ones.
  std::map<std::size_t, ConfigKeys> configs_of_layers(const Json& each) const {
    constexpr std::string_view key = "per_layer_config";
    if (!each.is_object()) keys_.fail(key, "is not a JSON object");
    std::map<std::size_t, ConfigKeys> configs;
    for (const auto& [name, value] : each.items()) {
      std::size_t layer = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
      if (error != std::errc{} || end != name.data() + name.size() || !value.is_object())
        keys_.fail(key, "has '{}', where objects by the number of a layer are expected", name);
      const ConfigKeys inner(value, keys_.file(), fmt::format("{}.{}.", keys_.name(key), name));
      if (!configs.emplace(layer, inner).second) keys_.fail(key, "has layer {} twice", layer);
    }
    return configs;
  }

  // By keys for all such layers, or by an object for each.
  void read_wide_shape(const std::vector<std::string>& words, AttentionShape& wide) const {
    const Json* each = keys_.find("per_layer_config");
    if (each == nullptr) {
      wide.head_dim = keys_.integer_or("global_head_dim", 1, max_width, 512);
      if (wide.values_are_keys && keys_.is_there("num_global_key_value_heads"))
        wide.kv_heads = key_heads(keys_, "num_global_key_value_heads", wide.heads);
      return;
    }
    const std::map<std::size_t, ConfigKeys> configs = configs_of_layers(*each);
    std::set<std::size_t> stated, wanted;
    for (const auto& [layer, config] : configs) stated.insert(layer);
    for (std::size_t layer = 0; layer < words.size(); ++layer)
      if (words[layer] == "full_attention") wanted.insert(layer);
    if (stated != wanted)
      keys_.fail("per_layer_config", "speaks of the layers {}, and those with full attention are {}",
                 fmt::join(stated, ", "), fmt::join(wanted, ", "));
    std::optional<std::pair<std::int64_t, std::int64_t>> first;
    for (const auto& [layer, config] : configs) {
      const std::pair<std::int64_t, std::int64_t> shape = {
          config.integer_or("head_dim", 1, max_width, static_cast<int>(wide.head_dim)),
          config.integer_or("num_key_value_heads", 1, max_heads, static_cast<int>(wide.kv_heads))};
      if (first && shape != *first)
        config.fail("head_dim", "is not that of other layers with full attention, which are counted alike");
      first = shape;
    }
    if (first) std::tie(wide.head_dim, wide.kv_heads) = *first;
  }

  DeltaShape delta() const {
    return {.key_heads = keys_.integer("linear_num_key_heads", 1, max_heads),
            .value_heads = keys_.integer("linear_num_value_heads", 1, max_heads),
            .key_dim = width("linear_key_head_dim"),
            .value_dim = width("linear_value_head_dim"),
            .kernel = width("linear_conv_kernel_dim")};
  }

  MambaShape mamba(const MambaKeys& keys) const {
    MambaShape shape;
    shape.heads = keys_.integer(keys.heads, 1, max_heads);
    shape.width =
        keys.expand.empty() ? shape.heads * width(keys.head_dim) : width(keys.expand) * model_.hidden;
    shape.groups = keys_.integer(keys.groups, 1, max_heads);
    shape.state = width(keys.state);
    shape.kernel = width(keys.kernel);
    shape.conv_bias = keys_.flag(keys.conv_bias, true);
    shape.biases = keys_.flag(keys.biases, false);
    return shape;
  }

  const ConfigKeys& keys_;
  const WeightRule& rule_;
  ModelDescription& model_;
};

}  // namespace

std::int64_t key_heads(const ConfigKeys& config, std::string_view key, std::int64_t heads) {
  const int number = config.integer(key, 1, max_heads);
  if (heads % number != 0) config.fail(key, "is {}, which does not divide the {} heads", number, heads);
  return number;
}

void read_layer_parts(const ConfigKeys& config, const WeightRule& rule, ModelDescription& model) {
  LayerReader(config, rule, model).read();
}

}  // namespace evenkeel::internal
