#include "evenkeel/io/model_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/language_config.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/model/family.h"

namespace evenkeel {

using namespace internal;

namespace {

using Compression = LayerParts::Compression;
using Mixer = LayerParts::Mixer;

constexpr int max_width = 1 << 24;
constexpr int max_heads = 65536;
constexpr int max_vocabulary = 1 << 28;
constexpr int max_streams = 256;
constexpr int max_window = 1 << 30;
// Words of layer_types.
constexpr std::string_view sparse_layer = "compressed_sparse_attention";
constexpr std::string_view heavy_layer = "heavily_compressed_attention";
// Far above every model, and low enough that 32 bytes a weight can be added up in 63 bits.
constexpr double max_parameters = 0x1p56;

const Family& counted_family(const LanguageConfig& config) {
  if (config.family != nullptr && config.family->weights) return *config.family;
  std::vector<std::string_view> known;
  for (const Family& family : known_families())
    if (family.weights) known.insert(known.end(), family.model_types.begin(), family.model_types.end());
  const std::string& type = config.model_type;
  if (type.empty()) config.keys.fail("model_type", "is missing");
  config.keys.fail("model_type", "is '{}', whose weights cannot be counted; known: {}", type,
                   fmt::join(known, ", "));
}

// Reads the sizes of one config by the rule of its family.
class Reader {
 public:
  explicit Reader(LanguageConfig config)
      : config_(std::move(config)),
        keys_(config_.keys),
        family_(counted_family(config_)),
        rule_(*family_.weights) {}

  ModelDescription read() {
    model_.family = config_.model_type;
    for (const std::string_view key : rule_.off) require_off(key);
    model_.hidden = width("hidden_size");
    read_layers();
    model_.vocabulary = keys_.integer("vocab_size", 1, max_vocabulary);
    // Around a language model that is a part, the whole decides.
    model_.tied_embeddings =
        config_.whole.flag("tie_word_embeddings", keys_.flag("tie_word_embeddings", rule_.tied));
    model_.attention = attention();
    read_experts();
    read_layer_parts();
    read_windows();
    read_dense();
    model_.layer_norms = rule_.norms;
    model_.expert_norms = rule_.expert_norms;
    model_.norm_biases = rule_.norm_biases;
    model_.layer_scalar = rule_.layer_scalar;
    if (!rule_.streams.empty()) model_.streams = keys_.integer(rule_.streams, 1, max_streams);
    model_.head_bias = !rule_.head_bias.empty() && keys_.flag(rule_.head_bias, false);
    read_dtype();
    require_countable();
    return model_;
  }

 private:
  std::int64_t width(std::string_view key) const { return keys_.integer(key, 1, max_width); }

  std::int64_t size(const SizeKey& size) const {
    if (size.absent >= 0 && !keys_.find(size.key))
      keys_.fail(size.key, "is missing; null says {}", size.absent);
    return size.absent < 0 ? keys_.integer(size.key, 0, max_width)
                           : keys_.integer_or(size.key, 0, max_width, static_cast<int>(size.absent));
  }

  void require_off(std::string_view key) const {
    if (!keys_.is_there(key) || keys_.is_false(key)) return;
    const JsonField value = keys_.at(key);
    if (value->is_boolean() || value.integer(0, max_width) != 0)
      value.fail("is {}, and the weights that it adds are not counted", value->dump());
  }

  void read_layers() {
    const ModelLayers layers = layers_of(keys_, &family_);
    model_.num_layers = layers.num_hidden_layers;
    model_.has_experts.assign(static_cast<std::size_t>(model_.num_layers), false);
    for (const int layer : layers.moe_layers) model_.has_experts[static_cast<std::size_t>(layer)] = true;
    for (int layer = layers.num_hidden_layers; layer < layers.num_hidden_layers + layers.num_mtp_layers;
         ++layer)
      model_.prediction_layers.push_back(std::ranges::binary_search(layers.mtp_layers, layer));
    if (layers.num_experts == 0) keys_.fail(rule_.experts, "is missing");
    model_.experts.count = layers.num_experts;
  }

  AttentionShape attention() const {
    const AttentionRule& rule = rule_.attention;
    AttentionShape shape;
    shape.heads = keys_.integer("num_attention_heads", 1, max_heads);
    if (rule.kind == AttentionRule::Kind::latent)
      read_latent(shape);
    else if (rule.kind == AttentionRule::Kind::compressed)
      read_compressed(shape);
    else
      read_grouped(shape);
    shape.input_biases = !rule.biases.key.empty() && keys_.flag(rule.biases.key, rule.biases.absent);
    shape.output_bias = shape.input_biases && rule.output_bias;
    shape.output_gate = rule.output_gate;
    shape.sinks = rule.sinks;
    if (rule.norm_switch.empty() || keys_.flag(rule.norm_switch, false)) shape.query_key_norm = rule.norm;
    return shape;
  }

  void read_compressed(AttentionShape& shape) const {
    shape.kv_heads = 1;
    shape.head_dim = width("head_dim");
    shape.compressed = CompressedAttention{.query_rank = width("q_lora_rank"),
                                           .output_rank = width("o_lora_rank"),
                                           .output_groups = keys_.integer("o_groups", 1, max_heads),
                                           .sparse_rate = compression_rate(sparse_layer, 4),
                                           .heavy_rate = compression_rate(heavy_layer, 128)};
  }

  std::int64_t compression_rate(std::string_view kind, int usual) const {
    if (!keys_.is_there("compress_rates")) return usual;
    const JsonField rates = keys_.at("compress_rates");
    if (!rates->is_object()) rates.fail("is not a JSON object");
    return ConfigKeys(rates).integer_or(kind, 1, max_width, usual);
  }

  void read_grouped(AttentionShape& shape) const {
    shape.kv_heads = key_heads("num_key_value_heads", shape.heads);
    if (!keys_.is_there("head_dim") && rule_.attention.stated_head_dim)
      keys_.fail("head_dim", "is missing; its class has one that is not the hidden size over the heads");
    if (!keys_.is_there("head_dim") && model_.hidden % shape.heads != 0)
      keys_.fail("head_dim", "is missing, and {} heads do not divide the hidden size {}", shape.heads,
                 model_.hidden);
    shape.head_dim =
        keys_.integer_or("head_dim", 1, max_width, static_cast<int>(model_.hidden / shape.heads));
  }

  void read_latent(AttentionShape& shape) const {
    shape.kv_heads = keys_.integer("num_key_value_heads", 1, max_heads);
    if (!keys_.find("q_lora_rank"))
      keys_.fail("q_lora_rank", "is missing; null says that queries are not compressed");
    shape.latent = LatentAttention{.query_rank = keys_.integer_or("q_lora_rank", 1, max_width, 0),
                                   .kv_rank = width("kv_lora_rank"),
                                   .nope_dim = width("qk_nope_head_dim"),
                                   .rope_dim = width("qk_rope_head_dim"),
                                   .value_dim = width("v_head_dim")};
    shape.head_dim = shape.latent->query_dim();
  }

  // A number of key heads, which divides that of all heads.
  std::int64_t key_heads(std::string_view key, std::int64_t heads) const {
    const int number = keys_.integer(key, 1, max_heads);
    if (heads % number != 0) keys_.fail(key, "is {}, which does not divide the {} heads", number, heads);
    return number;
  }

  // What the layers have in attention's place: linear attention, state spaces, heads of two widths,
  // compressed keys, indexers. Leaves `layers` empty where all are alike.
  void read_layer_parts() {
    const AttentionRule& attention = rule_.attention;
    const bool unlike = rule_.mamba || rule_.delta || rule_.one_block || attention.indexer ||
                        attention.wide_layers || model_.attention.compressed;
    if (!unlike) return;
    model_.layers.assign(static_cast<std::size_t>(model_.num_layers), {});
    if (rule_.delta) model_.delta = delta();
    if (attention.indexer || model_.attention.compressed)
      model_.indexer = AttentionIndexer{.heads = keys_.integer("index_n_heads", 1, max_heads),
                                        .head_dim = width("index_head_dim")};
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

  // A part of each layer, by what its word in a list means.
  template <class Part>
  void set(Part LayerParts::*part, std::string_view key, const std::vector<std::string>& words,
           const KnownWords<Part>& known) {
    if (std::ssize(words) != model_.num_layers)
      keys_.fail(key, "says something of {} layers, where the model has {}", words.size(), model_.num_layers);
    const std::vector<Part> parts = keys_.meanings(key, words, known);
    for (std::size_t layer = 0; layer < parts.size(); ++layer) model_.layers[layer].*part = parts[layer];
  }

  // Which layers are linear: by a list, or all but every so many-th.
  void read_linear_layers() {
    const Mixer linear = rule_.delta ? Mixer::delta : Mixer::mamba;
    const std::string_view list = keys_.is_there("layer_types") ? "layer_types" : "layers_block_type";
    if (keys_.is_there(list))
      return set(&LayerParts::mixer, list, keys_.words(list),
                 {{"linear_attention", linear},
                  {"mamba", linear},
                  {"full_attention", Mixer::attention},
                  {"attention", Mixer::attention}});
    if (!rule_.delta) keys_.fail("layer_types", "is missing");
    const int every = keys_.integer_or("full_attention_interval", 1, max_layers, 4);
    for (std::size_t layer = 0; layer < model_.layers.size(); ++layer)
      if ((layer + 1) % static_cast<std::size_t>(every) != 0) model_.layers[layer].mixer = linear;
  }

  // Layers that are one block each, by a list or a letter of a pattern for each: a mixer, or a network.
  void read_blocks() {
    const bool list = keys_.is_there("layers_block_type");
    const std::string_view key = list ? "layers_block_type" : "hybrid_override_pattern";
    set(&LayerParts::mixer, key, list ? keys_.words(key) : keys_.letters(key),
        {{"linear_attention", Mixer::mamba},
         {"mamba", Mixer::mamba},
         {"M", Mixer::mamba},
         {"full_attention", Mixer::attention},
         {"attention", Mixer::attention},
         {"*", Mixer::attention},
         {"moe", Mixer::none},
         {"mlp", Mixer::none},
         {"E", Mixer::none},
         {"-", Mixer::none}});
    for (LayerParts& parts : model_.layers) parts.network = parts.mixer == Mixer::none;
  }

  // Layers that choose again what is attended to; the others take the choice of the layer before.
  void read_indexers() {
    for (LayerParts& parts : model_.layers) parts.indexer = true;
    if (keys_.is_there("indexer_types"))
      set(&LayerParts::indexer, "indexer_types", keys_.words("indexer_types"),
          {{"full", true}, {"shared", false}});
    else if (keys_.is_there("index_topk_pattern") ||
             keys_.integer_or("index_topk_freq", 1, max_layers, 1) != 1)
      keys_.fail("indexer_types", "is missing, where other keys say that layers share their indexers");
  }

  // DeepSeek-V4: layers compress keys or not, by a word for each or by how many tokens make a key (a list
  // that may go on to layers of prediction), and the first route by a table.
  void read_compressed_layers() {
    const std::vector<bool> by_table = table_layers(keys_, static_cast<int>(model_.num_layers), 3);
    for (std::size_t layer = 0; layer < by_table.size(); ++layer)
      model_.layers[layer].router_table = by_table[layer];
    if (keys_.is_there("layer_types") || !keys_.is_there("compress_ratios"))
      return set(&LayerParts::compression, "layer_types", keys_.words("layer_types"),
                 {{"sliding_attention", Compression::none},
                  {sparse_layer, Compression::sparse},
                  {heavy_layer, Compression::heavy}});
    std::vector<std::string> ratios;
    for (const std::int64_t ratio : keys_.at("compress_ratios").integers())
      ratios.push_back(std::to_string(ratio));
    if (std::ssize(ratios) > model_.num_layers) ratios.resize(model_.layers.size());
    const std::string sparse = std::to_string(model_.attention.compressed->sparse_rate);
    const std::string heavy = std::to_string(model_.attention.compressed->heavy_rate);
    set(&LayerParts::compression, "compress_ratios", ratios,
        {{"0", Compression::none}, {sparse, Compression::sparse}, {heavy, Compression::heavy}});
  }

  // Gemma 4: layers with full attention have wider heads, fewer of keys, and may take keys for values.
  void read_wide_layers() {
    set(&LayerParts::mixer, "layer_types", keys_.words("layer_types"),
        {{"full_attention", Mixer::wide_attention}, {"sliding_attention", Mixer::attention}});
    AttentionShape wide = model_.attention;
    wide.values_are_keys = keys_.flag("attention_k_eq_v", false);
    if (keys_.is_there("per_layer_config")) {
      read_wide_shape(keys_.at("per_layer_config"), wide);
    } else {
      wide.head_dim = keys_.integer_or("global_head_dim", 1, max_width, 512);
      if (wide.values_are_keys && keys_.is_there("num_global_key_value_heads"))
        wide.kv_heads = key_heads("num_global_key_value_heads", wide.heads);
    }
    model_.wide_attention = wide;
  }

  // By an object for each such layer. Their keys are numbers of layers, with zeros before short ones.
  void read_wide_shape(const JsonField& each, AttentionShape& wide) const {
    if (!each->is_object()) each.fail("is not a JSON object");
    std::set<std::size_t> stated, wanted;
    for (std::size_t layer = 0; layer < model_.layers.size(); ++layer)
      if (model_.layers[layer].mixer == Mixer::wide_attention) wanted.insert(layer);
    const AttentionShape narrow = wide;
    for (const auto& [name, value] : each->items()) {
      std::size_t layer = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
      if (error != std::errc{} || end != name.data() + name.size() || !value.is_object())
        each.fail("has '{}', where objects by the number of a layer are expected", name);
      if (!stated.insert(layer).second) each.fail("has layer {} twice", layer);
      const ConfigKeys config(each[name]);
      const std::int64_t head_dim =
          config.integer_or("head_dim", 1, max_width, static_cast<int>(narrow.head_dim));
      const std::int64_t kv_heads =
          config.integer_or("num_key_value_heads", 1, max_heads, static_cast<int>(narrow.kv_heads));
      if (stated.size() > 1 && (head_dim != wide.head_dim || kv_heads != wide.kv_heads))
        config.fail("head_dim", "is not that of other layers with full attention, which are counted alike");
      wide.head_dim = head_dim;
      wide.kv_heads = kv_heads;
    }
    if (stated != wanted)
      each.fail("speaks of the layers {}, and those with full attention are {}", fmt::join(stated, ", "),
                fmt::join(wanted, ", "));
  }

  // By a word for each layer, from some layer on, or all but every so many-th.
  void read_windows() {
    const std::string_view key = keys_.is_there("sliding_window") ? "sliding_window" : "attention_chunk_size";
    if (!keys_.is_there(key) || keys_.is_false("use_sliding_window")) return;
    const std::int64_t window = keys_.integer(key, 0, max_window);
    std::vector<bool> windowed(static_cast<std::size_t>(model_.num_layers), true);
    const int every = keys_.integer_or("sliding_window_pattern", 1, max_layers, rule_.attention.full_every);
    const int first = keys_.integer_or("max_window_layers", 0, max_layers, 0);
    if (keys_.is_list("layer_types") && !model_.attention.compressed)
      windowed = keys_.meanings<bool>("layer_types", keys_.words("layer_types"),
                                      {{"sliding_attention", true}, {"chunked_attention", true}}, false);
    else if (every > 0)
      for (std::size_t layer = 0; layer < windowed.size(); ++layer)
        windowed[layer] = (layer + 1) % static_cast<std::size_t>(every) != 0;
    else if (keys_.flag("use_sliding_window", false))
      std::fill_n(windowed.begin(), std::min<std::int64_t>(first, model_.num_layers), false);
    for (const bool has : windowed) model_.windows.push_back(has ? window : 0);
    model_.windows.resize(static_cast<std::size_t>(model_.num_layers));
  }

  DeltaShape delta() const {
    return {.key_heads = keys_.integer("linear_num_key_heads", 1, max_heads),
            .value_heads = keys_.integer("linear_num_value_heads", 1, max_heads),
            .key_dim = width("linear_key_head_dim"),
            .value_dim = width("linear_value_head_dim"),
            .kernel = width("linear_conv_kernel_dim")};
  }

  MambaShape mamba(const MambaKeys& keys) const {
    const int heads = keys_.integer(keys.heads, 1, max_heads);
    return {.heads = heads,
            .width = keys.expand.empty() ? heads * width(keys.head_dim) : width(keys.expand) * model_.hidden,
            .groups = keys_.integer(keys.groups, 1, max_heads),
            .state = width(keys.state),
            .kernel = width(keys.kernel),
            .biases = keys_.flag(keys.biases, false),
            .conv_bias = keys_.flag(keys.conv_bias, true)};
  }

  void read_experts() {
    RoutedExperts& experts = model_.experts;
    experts.top_k = keys_.same_integer(rule_.top_k, 1, static_cast<int>(experts.count));
    experts.intermediate = keys_.same_integer(rule_.expert_width, 1, max_width);
    if (!rule_.latent_width.empty()) experts.latent = keys_.integer_or(rule_.latent_width, 1, max_width, 0);
    const std::int64_t shared = rule_.shared_count ? size(*rule_.shared_count) : rule_.shared_width ? 1 : 0;
    if (shared > max_experts)
      keys_.fail(rule_.shared_count->key, "is {}; allowed: 0..{}", shared, max_experts);
    if (shared > 0) experts.shared_width = shared * size(*rule_.shared_width);
    experts.shared_gate = rule_.shared_gate;
    experts.gated = rule_.gated;
    experts.biases = rule_.expert_biases;
    experts.router_bias = rule_.router_bias;
    experts.router_correction = rule_.router_correction;
    experts.router_scales = rule_.router_scales;
  }

  // The width of networks without experts, where a layer has one.
  void read_dense() {
    for (std::int64_t layer = 0; layer < model_.num_layers && model_.dense_intermediate == 0; ++layer)
      if (!model_.has_experts[static_cast<std::size_t>(layer)] && model_.parts(layer).network)
        model_.dense_intermediate = width(rule_.dense_width);
  }

  void read_dtype() {
    for (const ConfigKeys* config : {&config_.whole, &keys_})
      if (config->is_there("quantization_config") && config->at("quantization_config")->is_object())
        model_.quantization = ConfigKeys(config->at("quantization_config")).word("quant_method");
    // None is as the weights have it.
    const KnownWords<int> known = {{"bfloat16", 2}, {"float16", 2}, {"float32", 4}, {"auto", 0}};
    for (const ConfigKeys* config : {&keys_, &config_.whole}) {
      // The newer name and the older one.
      const std::string_view key = config->is_there("dtype") ? "dtype" : "torch_dtype";
      if (!config->is_there(key)) continue;
      std::string name = config->word(key);
      if (name.starts_with("torch.")) name.erase(0, std::string_view("torch.").size());
      const int bytes = config->meanings(key, {name}, known).front();
      if (bytes == 0) continue;
      model_.dtype = name;
      model_.dtype_bytes = bytes;
      return;
    }
  }

  // In floating point, since a damaged number may make more weights than 63 bits count. Every matrix of a
  // layer has a narrow side, of the hidden state or what it is compressed to, and a wide one.
  void require_countable() const {
    const auto real = [](auto... factors) { return (1.0 * ... * static_cast<double>(factors)); };
    double narrow = 1 + real(model_.hidden) + real(model_.experts.latent);
    double wide = std::max(
        real(model_.experts.count, model_.experts.intermediate + 1) + real(model_.experts.shared_width),
        real(model_.dense_intermediate));
    for (const AttentionShape& shape : {model_.attention, model_.wide_attention.value_or(AttentionShape())}) {
      wide += real(2 * (shape.heads + shape.kv_heads), shape.head_dim);
      if (shape.latent) wide += real(shape.heads, shape.latent->value_dim);
      if (shape.latent) narrow += real(shape.latent->query_rank) + real(shape.latent->kv_rank);
    }
    if (const auto& ranks = model_.attention.compressed) {
      narrow += real(ranks->query_rank) + real(ranks->output_rank, ranks->output_groups);
      wide += real(model_.attention.head_dim, 5 + ranks->sparse_rate + ranks->heavy_rate) +
              real(2 * model_.indexer->head_dim, 2 + ranks->sparse_rate);
    }
    wide += real(4, model_.streams, model_.streams, model_.streams);
    if (model_.indexer) wide += real(model_.indexer->heads, model_.indexer->head_dim);
    if (const auto& delta = model_.delta)
      wide += (real(delta->key_heads, delta->key_dim) + real(delta->value_heads, delta->value_dim)) *
              real(2 + delta->kernel);
    if (const auto& mamba = model_.mamba)
      wide += (real(mamba->width) + real(mamba->groups, mamba->state)) * real(4 + mamba->kernel);
    if (real(4, model_.num_layers) * narrow * (narrow + wide) + real(2, model_.hidden, model_.vocabulary) >
        max_parameters)
      keys_.fail("", "makes more weights than any machine holds; is one of its numbers damaged?");
  }

  const LanguageConfig config_;
  const ConfigKeys& keys_;
  const Family& family_;
  const WeightRule& rule_;
  ModelDescription model_;
};

}  // namespace

ModelDescription read_model_description(const ByteSource& source) {
  return Reader(read_language_config(source)).read();
}

std::vector<int> ModelLayers::all_layers() const {
  std::vector<int> all = moe_layers;
  all.insert(all.end(), mtp_layers.begin(), mtp_layers.end());
  return all;
}

ModelLayers read_model_layers(const ByteSource& source) {
  const LanguageConfig file = read_language_config(source);
  std::vector<ConfigKeys> all = file.nested;
  std::erase_if(all, [](const ConfigKeys& config) { return !speaks_of_experts(config); });
  if (all.empty())
    file.whole.fail("", "names no experts; a model that has them says how many ({}) and in which layers",
                    fmt::join(expert_count_keys, ", "));
  const ConfigKeys outermost = all.front();
  std::erase_if(all, [](const ConfigKeys& config) { return !hidden_layers(config); });
  const ModelLayers layers = layers_of(all.empty() ? outermost : all.front(), file.family);
  for (const ConfigKeys& other : all)
    if (layers_of(other, file.family) != layers)
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
