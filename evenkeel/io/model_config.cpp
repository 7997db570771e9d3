#include "evenkeel/io/model_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/base/parse.h"
#include "evenkeel/io/internal/checkpoint/weight_names.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/language_config.h"
#include "evenkeel/io/internal/layer_caches.h"
#include "evenkeel/io/internal/rule_weights.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/model/family.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr int max_vocabulary = 1 << 28;
// Limit for listing weights one by one; models have at most a few hundred layers.
constexpr std::int64_t max_listed_layers = 4096;
// Far above every model, and low enough that 32 bytes a weight add up to less than 2^63.
constexpr double max_parameters = 0x1p56;

// Keys that add weights if their value is a nonzero number, an object or true.
const std::vector<std::string> weight_keys = split(
    "vision_config audio_config speech_config mlp_bias use_bias index_n_heads n_shared_experts "
    "num_shared_experts moe_num_shared_experts shared_expert_intermediate_size shared_intermediate_size "
    "moe_shared_expert_intermediate_size hidden_size_per_layer_input num_kv_shared_layers "
    "linear_num_value_heads mamba_num_heads mamba_n_heads hc_mult moe_latent_size lm_head_bias kv_lora_rank "
    "engram_vocab_size",
    ' ');

// The rule for a family without one, from keys that most families have.
WeightRule usual_rule(const ConfigKeys& keys) {
  WeightRule rule;
  for (const std::string_view key :
       {"intermediate_size", "ffn_hidden_size", "expert_ffn_hidden_size", "moe_intermediate_size"})
    if (keys.is_there(key)) rule.expert_width = key;
  if (keys.is_there("kv_lora_rank")) rule.attention.kind = AttentionRule::Kind::latent;
  return rule;
}

std::string counted_layers(std::int64_t number) {
  return number == 1 ? "a layer" : fmt::format("{} layers", number);
}

// Reads the sizes of one config by the rule of its family.
class Reader {
 public:
  explicit Reader(LanguageConfig config) : config_(std::move(config)), keys_(config_.keys) {
    known_ = config_.family != nullptr && config_.family->weights;
    rule_ = known_ ? *config_.family->weights : usual_rule(keys_);
    has_rule_ = known_ && !rule_.sizes_alone;
  }

  // From the config only.
  ModelDescription read() {
    read_sizes();
    read_layers();
    read_attention();
    read_experts();
    read_dense();
    model_.caches = layer_caches(keys_, rule_.attention, model_);
    if (!has_rule_) return model_;
    const std::int64_t layers = model_.num_layers + std::ssize(model_.prediction_layers);
    if (layers > max_listed_layers)
      keys_.fail("", "has {} layers; weights are counted for at most {}", layers, max_listed_layers);
    model_.weights = weights_by_rule(keys_, rule_, model_);
    require_countable();
    note_uncounted();
    return model_;
  }

  // From the config and the weights.
  ModelDescription read(std::span<const NamedTensor> tensors) {
    read_sizes();
    model_.num_layers = hidden_layers(keys_).value_or(0);
    if (model_.num_layers == 0) keys_.fail("num_hidden_layers", "is missing");
    model_.experts.count = num_experts(keys_);
    read_attention();
    const int named = prediction_layers(keys_);
    model_.prediction_layers.resize(static_cast<std::size_t>(named));
    take_weights(model_, tensors);
    require_countable();
    read_top_k();
    model_.caches = layer_caches(keys_, rule_.attention, model_);
    if (named > std::ssize(model_.prediction_layers))
      model_.notes.push_back(fmt::format(
          "{} of multi-token prediction (MTP) in the config: not counted, since the weights do not have them",
          counted_layers(named - std::ssize(model_.prediction_layers))));
    return model_;
  }

 private:
  std::int64_t width(std::string_view key) const { return keys_.integer(key, 1, max_width); }

  void read_sizes() {
    model_.family = config_.model_type;
    model_.hidden = width("hidden_size");
    model_.vocabulary = keys_.integer("vocab_size", 1, max_vocabulary);
    // If the language model is part of a larger model, the larger model's key decides.
    model_.tied_embeddings =
        config_.whole.flag("tie_word_embeddings", keys_.flag("tie_word_embeddings", rule_.tied));
    read_dtype();
  }

  std::int64_t size(const SizeKey& size) const {
    if (size.absent >= 0 && !keys_.find(size.key))
      keys_.fail(size.key, "is missing; null would mean {}", size.absent);
    return size.absent < 0 ? keys_.integer(size.key, 0, max_width)
                           : keys_.integer_or(size.key, 0, max_width, static_cast<int>(size.absent));
  }

  // Adds a note for each key whose weights the rule does not know.
  void note_uncounted() {
    std::set<std::string_view> read = {rule_.latent_width, rule_.head_bias, rule_.attention.norm_switch};
    if (rule_.shared_width) read.insert(rule_.shared_width->key);
    if (rule_.shared_count) read.insert(rule_.shared_count->key);
    if (rule_.attention.kind == AttentionRule::Kind::latent) read.insert("kv_lora_rank");
    if (rule_.attention.indexer) read.insert("index_n_heads");
    if (rule_.delta) read.insert("linear_num_value_heads");
    for (const ConfigKeys* config : {&config_.whole, &keys_})
      for (const std::string_view key : weight_keys)
        if (!read.contains(key) && config->is_there(key) && adds(*config->at(key)) && read.insert(key).second)
          model_.notes.push_back(
              fmt::format("{} is set, but the weights that it adds are not counted", config->name(key)));
  }

  static bool adds(const Json& value) {
    if (value.is_boolean()) return value.get<bool>();
    return value.is_number() ? value != 0 : value.is_object();
  }

  void read_layers() {
    const ModelLayers layers = layers_of(keys_, config_.family);
    model_.num_layers = layers.num_hidden_layers;
    model_.has_experts.assign(static_cast<std::size_t>(model_.num_layers), false);
    for (const int layer : layers.moe_layers) model_.has_experts[static_cast<std::size_t>(layer)] = true;
    for (int layer = layers.num_hidden_layers; layer < layers.num_hidden_layers + layers.num_mtp_layers;
         ++layer)
      model_.prediction_layers.push_back(std::ranges::binary_search(layers.mtp_layers, layer));
    if (layers.num_experts == 0) keys_.fail(rule_.experts, "is missing");
    model_.experts.count = layers.num_experts;
  }

  void read_attention() {
    const AttentionRule& rule = rule_.attention;
    AttentionShape& shape = model_.attention;
    shape.heads = keys_.integer("num_attention_heads", 1, max_heads);
    if (rule.kind == AttentionRule::Kind::latent)
      read_latent(shape);
    else
      read_grouped(shape);
    if (rule.norm_switch.empty() || keys_.flag(rule.norm_switch, false)) shape.query_key_norm = rule.norm;
  }

  void read_grouped(AttentionShape& shape) const {
    const bool stated = known_ || keys_.is_there("num_key_value_heads");
    shape.kv_heads = stated ? key_heads(keys_, "num_key_value_heads", shape.heads) : shape.heads;
    if (!keys_.is_there("head_dim") && rule_.attention.stated_head_dim)
      keys_.fail("head_dim", "is missing; for this model it is not the hidden size divided by the heads");
    if (known_ && !keys_.is_there("head_dim") && model_.hidden % shape.heads != 0)
      keys_.fail("head_dim", "is missing, and {} heads do not divide the hidden size {}", shape.heads,
                 model_.hidden);
    shape.head_dim = keys_.integer_or("head_dim", 1, max_width,
                                      static_cast<int>((model_.hidden + shape.heads - 1) / shape.heads));
  }

  void read_latent(AttentionShape& shape) const {
    shape.kv_heads = keys_.integer("num_key_value_heads", 1, max_heads);
    if (known_ && !keys_.find("q_lora_rank"))
      keys_.fail("q_lora_rank", "is missing; null would mean that queries are not compressed");
    shape.latent = LatentAttention{.query_rank = keys_.integer_or("q_lora_rank", 1, max_width, 0),
                                   .kv_rank = width("kv_lora_rank"),
                                   .nope_dim = width("qk_nope_head_dim"),
                                   .rope_dim = keys_.integer("qk_rope_head_dim", known_ ? 1 : 0, max_width),
                                   .value_dim = width("v_head_dim")};
    shape.head_dim = shape.latent->query_dim();
  }

  void read_top_k() {
    const int listed = known_ ? 0 : top_k(keys_);
    model_.experts.top_k =
        listed > 0 ? listed : keys_.same_integer(rule_.top_k, 1, static_cast<int>(model_.experts.count));
  }

  void read_experts() {
    RoutedExperts& experts = model_.experts;
    read_top_k();
    experts.intermediate = keys_.same_integer(rule_.expert_width, 1, max_width);
    if (!rule_.latent_width.empty()) experts.latent = keys_.integer_or(rule_.latent_width, 1, max_width, 0);
    const std::int64_t shared = rule_.shared_count ? size(*rule_.shared_count) : rule_.shared_width ? 1 : 0;
    if (shared > max_experts)
      keys_.fail(rule_.shared_count->key, "is {}; allowed: 0..{}", shared, max_experts);
    if (shared > 0) experts.shared_width = shared * size(*rule_.shared_width);
    experts.gated = rule_.gated;
    experts.biases = rule_.expert_biases;
  }

  // The width of dense networks, if there is a layer without experts.
  void read_dense() {
    const bool dense = std::ranges::count(model_.has_experts, false) > 0 ||
                       std::ranges::count(model_.prediction_layers, false) > 0;
    if (dense && (has_rule_ || keys_.is_there(rule_.dense_width)))
      model_.dense_intermediate = width(rule_.dense_width);
  }

  void read_dtype() {
    for (const ConfigKeys* config : {&config_.whole, &keys_})
      if (config->is_there("quantization_config") && config->at("quantization_config")->is_object())
        model_.quantization = ConfigKeys(config->at("quantization_config")).word("quant_method");
    // Without a value, or with "auto", the type is that of the weights.
    const KnownWords<int> known = {{"bfloat16", 2}, {"float16", 2}, {"float32", 4}, {"auto", 0}};
    for (const ConfigKeys* config : {&keys_, &config_.whole}) {
      // "dtype" is the newer name.
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

  // Computed in floating point, since damaged numbers could overflow 63 bits.
  void require_countable() const {
    double sum = 0;
    for (const Weight& weight : model_.weights) {
      double numbers = 1;
      for (const std::int64_t length : weight.shape) numbers *= static_cast<double>(length);
      sum += numbers;
    }
    if (sum > max_parameters)
      keys_.fail("", "has sizes that make more weights than any machine holds; is one of the numbers wrong?");
  }

  const LanguageConfig config_;
  const ConfigKeys& keys_;
  WeightRule rule_;
  bool known_ = false;     // the family has a rule
  bool has_rule_ = false;  // the rule determines all weights
  ModelDescription model_;
};

// Bits of one number in a packed word, from the keys of compressed-tensors; 4 if there are none.
int packed_bits(const ConfigKeys& config) {
  const auto quantization = config.find("quantization_config");
  if (!quantization || !(*quantization)->is_object()) return 4;
  const auto groups = ConfigKeys(*quantization).find("config_groups");
  if (!groups || !(*groups)->is_object()) return 4;
  std::set<int> stated;
  for (const auto& [name, group] : (*groups)->items())
    if (const auto weights = ConfigKeys((*groups)[name]).find("weights"); weights && (*weights)->is_object())
      stated.insert(ConfigKeys(*weights).integer("num_bits", 1, 16));
  if (stated.size() > 1)
    groups->fail("packs weights with different numbers of bits, {}; only one number is supported",
                 fmt::join(stated, ", "));
  return stated.empty() ? 4 : *stated.begin();
}

}  // namespace

ModelDescription read_model_description(const ByteSource& source) {
  if (!source.is_folder() || !has_checkpoint(source.name()))
    return Reader(read_language_config(source)).read();
  const LanguageConfig config = read_language_config(source);
  const CheckpointWeights checkpoint = read_checkpoint_weights(source.name(), packed_bits(config.whole));
  ModelDescription model = Reader(config).read(checkpoint.tensors);
  model.notes.insert(model.notes.end(), checkpoint.notes.begin(), checkpoint.notes.end());
  return model;
}

ModelDescription read_model_description(const ByteSource& config, std::span<const NamedTensor> tensors) {
  return Reader(read_language_config(config)).read(tensors);
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
      file.whole.fail(other.key(),
                      "gives other layers with experts than {}; make both agree, or remove one of them",
                      all.front().key().empty() ? "the top level of the config" : all.front().key());
  return layers;
}

RoutingGroups read_model_groups(const ByteSource& source, int experts) {
  const LanguageConfig config = read_language_config(source);
  if (config.family == nullptr || !config.family->tensors || num_experts(config.keys) != experts) return {};
  return routing_groups(config.keys, *config.family, experts).value_or(RoutingGroups{});
}

}  // namespace evenkeel
