#include "evenkeel/io/model_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/io/internal/config_layers.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/language_config.h"
#include "evenkeel/io/internal/layer_parts.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/model_layers.h"
#include "evenkeel/model/family.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr int max_vocabulary = 1 << 28;
constexpr int max_streams = 256;
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
  explicit Reader(const LanguageConfig& config)
      : config_(config), keys_(config.keys), family_(counted_family(config)), rule_(*family_.weights) {}

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
    read_layer_parts(keys_, rule_, model_);
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
    if (size.absent >= 0 && !keys_.is_there(size.key) && !keys_.is_null(size.key))
      keys_.fail(size.key, "is missing; null says {}", size.absent);
    return size.absent < 0 ? keys_.integer(size.key, 0, max_width)
                           : keys_.integer_or(size.key, 0, max_width, static_cast<int>(size.absent));
  }

  // A number, or a list of it for every layer.
  int same_in_all_layers(std::string_view key, int most) const {
    const Json* value = keys_.find(key);
    if (value == nullptr || !value->is_array()) return keys_.integer(key, 1, most);
    const std::vector<std::int64_t> numbers = keys_.integers(key);
    if (numbers.empty() || std::ranges::any_of(numbers, [&](auto number) { return number != numbers[0]; }))
      keys_.fail(key, "lists different numbers; right would be one for all layers");
    if (numbers[0] < 1 || numbers[0] > most) keys_.fail(key, "lists {}; allowed: 1..{}", numbers[0], most);
    return static_cast<int>(numbers[0]);
  }

  void require_off(std::string_view key) const {
    const Json* value = keys_.find(key);
    if (value == nullptr || keys_.is_false(key)) return;
    if (value->is_boolean()) keys_.fail(key, "is true, and the weights that it adds are not counted");
    const int number = keys_.integer(key, 0, max_width);
    if (number != 0) keys_.fail(key, "is {}, and the weights that it adds are not counted", number);
  }

  void read_layers() {
    const ModelLayers layers = layers_of(keys_, &family_);
    model_.num_layers = layers.num_hidden_layers;
    model_.has_experts.assign(static_cast<std::size_t>(model_.num_layers), false);
    for (const int layer : layers.moe_layers) model_.has_experts[static_cast<std::size_t>(layer)] = true;
    model_.extra_prediction_layers = std::ssize(layers.mtp_layers);
    if (layers.num_experts == 0) keys_.fail(rule_.experts, "is missing");
    model_.experts.count = layers.num_experts;
  }

  AttentionShape attention() const {
    const AttentionRule& rule = rule_.attention;
    AttentionShape shape = rule.kind == AttentionRule::Kind::latent       ? latent_attention()
                           : rule.kind == AttentionRule::Kind::compressed ? compressed_attention()
                                                                          : grouped_attention();
    shape.input_biases = !rule.biases.key.empty() && keys_.flag(rule.biases.key, rule.biases.absent);
    shape.output_bias = shape.input_biases && rule.output_bias;
    shape.output_gate = rule.output_gate;
    shape.sinks = rule.sinks;
    if (rule.norm_switch.empty() || keys_.flag(rule.norm_switch, false)) shape.query_key_norm = rule.norm;
    return shape;
  }

  AttentionShape compressed_attention() const {
    AttentionShape shape;
    shape.heads = keys_.integer("num_attention_heads", 1, max_heads);
    shape.kv_heads = 1;
    shape.head_dim = width("head_dim");
    shape.compressed = CompressedAttention{.query_rank = width("q_lora_rank"),
                                           .output_rank = width("o_lora_rank"),
                                           .output_groups = keys_.integer("o_groups", 1, max_heads),
                                           .sparse_rate = compression_rate(sparse_layer, 4),
                                           .heavy_rate = compression_rate(heavy_layer, 128)};
    return shape;
  }

  std::int64_t compression_rate(std::string_view kind, int usual) const {
    const Json* rates = keys_.find("compress_rates");
    if (rates == nullptr) return usual;
    if (!rates->is_object()) keys_.fail("compress_rates", "is not a JSON object");
    return ConfigKeys(*rates, keys_.file(), keys_.name("compress_rates."))
        .integer_or(kind, 1, max_width, usual);
  }

  AttentionShape grouped_attention() const {
    AttentionShape shape;
    shape.heads = keys_.integer("num_attention_heads", 1, max_heads);
    shape.kv_heads = key_heads(keys_, "num_key_value_heads", shape.heads);
    if (!keys_.is_there("head_dim") && rule_.attention.stated_head_dim)
      keys_.fail("head_dim", "is missing; its class has one that is not the hidden size over the heads");
    if (!keys_.is_there("head_dim") && model_.hidden % shape.heads != 0)
      keys_.fail("head_dim", "is missing, and {} heads do not divide the hidden size {}", shape.heads,
                 model_.hidden);
    shape.head_dim =
        keys_.integer_or("head_dim", 1, max_width, static_cast<int>(model_.hidden / shape.heads));
    return shape;
  }

  AttentionShape latent_attention() const {
    AttentionShape shape;
    shape.heads = keys_.integer("num_attention_heads", 1, max_heads);
    shape.kv_heads = keys_.integer("num_key_value_heads", 1, max_heads);
    LatentAttention latent;
    if (!keys_.is_there("q_lora_rank") && !keys_.is_null("q_lora_rank"))
      keys_.fail("q_lora_rank", "is missing; null says that queries are not compressed");
    latent.query_rank = keys_.integer_or("q_lora_rank", 1, max_width, 0);
    latent.kv_rank = width("kv_lora_rank");
    latent.nope_dim = width("qk_nope_head_dim");
    latent.rope_dim = width("qk_rope_head_dim");
    latent.value_dim = width("v_head_dim");
    shape.head_dim = latent.query_dim();
    shape.latent = latent;
    return shape;
  }

  void read_experts() {
    RoutedExperts& experts = model_.experts;
    experts.top_k = same_in_all_layers(rule_.top_k, static_cast<int>(experts.count));
    experts.intermediate = same_in_all_layers(rule_.expert_width, max_width);
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
    constexpr std::array<std::pair<std::string_view, int>, 3> known = {
        {{"bfloat16", 2}, {"float16", 2}, {"float32", 4}}};
    for (const ConfigKeys* config : {&keys_, &config_.whole}) {
      // The newer name and the older one.
      const std::string_view key = config->is_there("dtype") ? "dtype" : "torch_dtype";
      const Json* value = config->find(key);
      if (value == nullptr) continue;
      if (!value->is_string()) config->fail(key, "is a JSON {}, not a word", value->type_name());
      std::string name = config->word(key);
      if (name == "auto") continue;  // as the weights have it
      if (name.starts_with("torch.")) name.erase(0, std::string_view("torch.").size());
      const auto found = std::ranges::find(known, name, &std::pair<std::string_view, int>::first);
      if (found == known.end()) config->fail(key, "is '{}'; known: bfloat16, float16, float32, auto", name);
      model_.dtype = name;
      model_.dtype_bytes = found->second;
      return;
    }
  }

  // In floating point, since a damaged number may make more weights than 63 bits count.
  void require_countable() const {
    const auto real = [](std::int64_t number) { return static_cast<double>(number); };
    const double hidden = real(model_.hidden);
    const double ffn = 4 * (hidden + real(model_.experts.latent) + 1) *
                       std::max(real(model_.experts.count) * (real(model_.experts.intermediate) + 1) +
                                    real(model_.experts.shared_width),
                                real(model_.dense_intermediate));
    double inner = 0;
    double compressed = 0;
    const auto add_attention = [&](const AttentionShape& shape) {
      inner += real(2 * shape.heads + 2 * shape.kv_heads) * real(shape.head_dim);
      if (shape.latent) {
        inner += real(shape.heads) * real(shape.latent->value_dim);
        compressed = real(shape.latent->query_rank + shape.latent->kv_rank);
      }
    };
    add_attention(model_.attention);
    if (model_.wide_attention) add_attention(*model_.wide_attention);
    if (model_.attention.compressed) {
      const CompressedAttention& ranks = *model_.attention.compressed;
      compressed = real(ranks.query_rank) + real(ranks.output_rank) * real(ranks.output_groups);
      inner += real(model_.attention.head_dim) * (5 + real(ranks.sparse_rate) + real(ranks.heavy_rate)) +
               2 * real(model_.indexer->head_dim) * (2 + real(ranks.sparse_rate)) +
               4 * real(model_.streams) * real(model_.streams) * real(model_.streams);
    }
    if (model_.indexer) inner += real(model_.indexer->heads) * real(model_.indexer->head_dim);
    if (model_.delta) {
      const DeltaShape& delta = *model_.delta;
      inner +=
          (real(delta.key_heads) * real(delta.key_dim) + real(delta.value_heads) * real(delta.value_dim)) *
          (2 + real(delta.kernel));
    }
    if (model_.mamba)
      inner += (real(model_.mamba->width) + real(model_.mamba->groups) * real(model_.mamba->state)) *
               (4 + real(model_.mamba->kernel));
    const double layer = ffn + 4 * (hidden + compressed + 1) * (inner + compressed + 1);
    if (real(model_.num_layers) * layer + 2 * hidden * real(model_.vocabulary) > max_parameters)
      keys_.fail("", "makes more weights than any machine holds; is one of its numbers damaged?");
  }

  const LanguageConfig& config_;
  const ConfigKeys& keys_;
  const Family& family_;
  const WeightRule& rule_;
  ModelDescription model_;
};

}  // namespace

ModelDescription read_model_description(const ByteSource& source) {
  std::string file;
  const JsonDocument json = read_model_config(source, file);
  const LanguageConfig config = language_config(json, file);
  return Reader(config).read();
}

}  // namespace evenkeel
