#include "evenkeel/io/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/model/parameters.h"

namespace evenkeel {

namespace {

using internal::Json;

constexpr std::int64_t max_width = 1 << 24;
constexpr std::int64_t max_vocabulary = 1 << 28;
// Far above every model, and low enough that 32 bytes a weight can be added up in 63 bits.
constexpr double max_parameters = 0x1p56;

// The keys of one config, each refused by its whole name.
class Config {
 public:
  Config(const Json& object, std::string file, std::string prefix)
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool states(const char* key) const { return object_.contains(key); }
  std::int64_t count(const char* key, std::int64_t least, std::int64_t most) const {
    const Json* value = find(key);
    if (value == nullptr) fail(key, "is missing");
    return number(*value, key, least, most);
  }
  std::int64_t count_or(const char* key, std::int64_t least, std::int64_t most, std::int64_t absent) const {
    return find(key) == nullptr ? absent : count(key, least, most);
  }
  bool flag(const char* key, bool absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) fail(key, fmt::format("is a JSON {}, not true or false", value->type_name()));
    return value->get<bool>();
  }
  std::string word(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) fail(key, fmt::format("is a JSON {}, not a word", value->type_name()));
    return value->get<std::string>();
  }
  std::vector<std::int64_t> list(const char* key) const {
    const Json* value = find(key);
    return value == nullptr ? std::vector<std::int64_t>{} : internal::integers(*value, file_, prefix_ + key);
  }
  [[noreturn]] void fail(std::string_view key, std::string why) const {
    throw ParseError(file_, key.empty() ? "" : prefix_ + std::string(key), std::move(why));
  }

 private:
  std::int64_t number(const Json& value, const char* key, std::int64_t least, std::int64_t most) const {
    return internal::small_integer(value, least, most, file_, prefix_ + key);
  }

  const Json& object_;
  std::string file_;
  std::string prefix_;
};

// Versions of transformers write the number of experts by different names.
std::int64_t num_experts(const Config& config, std::initializer_list<const char*> keys) {
  std::int64_t experts = 0;
  for (const char* key : keys) {
    if (config.find(key) == nullptr) continue;
    const std::int64_t stated = config.count(key, 1, max_experts);
    if (experts != 0 && stated != experts)
      config.fail(key, fmt::format("is {}, where another key says {}", stated, experts));
    experts = stated;
  }
  if (experts == 0) config.fail(*keys.begin(), "is missing");
  return experts;
}

std::int64_t width(const Config& config, const char* key) {
  return config.count(key, 1, max_width);
}

AttentionShape grouped_attention(const Config& config, std::int64_t hidden) {
  AttentionShape shape;
  shape.heads = config.count("num_attention_heads", 1, 65536);
  shape.kv_heads = config.count("num_key_value_heads", 1, 65536);
  if (shape.heads % shape.kv_heads != 0)
    config.fail("num_key_value_heads",
                fmt::format("is {}, which does not divide the {} heads", shape.kv_heads, shape.heads));
  if (config.find("head_dim") == nullptr && hidden % shape.heads != 0)
    config.fail("head_dim", fmt::format("is missing, and {} heads do not divide the hidden size {}",
                                        shape.heads, hidden));
  shape.head_dim = config.count_or("head_dim", 1, max_width, hidden / shape.heads);
  return shape;
}

AttentionShape latent_attention(const Config& config) {
  AttentionShape shape;
  shape.heads = config.count("num_attention_heads", 1, 65536);
  shape.kv_heads = config.count("num_key_value_heads", 1, 65536);
  LatentAttention latent;
  if (!config.states("q_lora_rank"))
    config.fail("q_lora_rank", "is missing; null says that queries are not compressed");
  latent.query_rank = config.count_or("q_lora_rank", 1, max_width, 0);
  latent.kv_rank = width(config, "kv_lora_rank");
  latent.nope_dim = width(config, "qk_nope_head_dim");
  latent.rope_dim = width(config, "qk_rope_head_dim");
  latent.value_dim = width(config, "v_head_dim");
  shape.head_dim = latent.query_dim();
  shape.latent = latent;
  shape.biases = config.flag("attention_bias", false);
  return shape;
}

void read_mixtral(const Config& config, ModelDescription& model) {
  model.attention = grouped_attention(config, model.hidden);
  model.experts.count = num_experts(config, {"num_local_experts", "num_experts"});
  model.experts.intermediate = width(config, "intermediate_size");
}

void read_qwen3_moe(const Config& config, ModelDescription& model) {
  model.attention = grouped_attention(config, model.hidden);
  model.attention.biases = config.flag("attention_bias", false);
  model.attention.query_key_norm = AttentionShape::QueryKeyNorm::per_head;
  model.experts.count = num_experts(config, {"num_experts", "num_local_experts"});
  model.experts.intermediate = width(config, "moe_intermediate_size");
  const std::int64_t step = config.count_or("decoder_sparse_step", 1, max_layers, 1);
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    model.has_experts[static_cast<std::size_t>(layer)] = (layer + 1) % step == 0;
  for (const std::int64_t dense : config.list("mlp_only_layers")) {
    if (dense < 0 || dense >= model.num_layers)
      config.fail("mlp_only_layers", fmt::format("names layer {} of {}", dense, model.num_layers));
    model.has_experts[static_cast<std::size_t>(dense)] = false;
  }
}

void read_olmoe(const Config& config, ModelDescription& model) {
  model.attention = grouped_attention(config, model.hidden);
  model.attention.biases = config.flag("attention_bias", false);
  model.attention.query_key_norm = AttentionShape::QueryKeyNorm::whole;
  model.experts.count = num_experts(config, {"num_experts", "num_local_experts"});
  model.experts.intermediate = width(config, "intermediate_size");
}

void read_deepseek(const Config& config, ModelDescription& model) {
  model.attention = latent_attention(config);
  model.experts.count = num_experts(config, {"n_routed_experts", "num_local_experts", "num_experts"});
  model.experts.intermediate = width(config, "moe_intermediate_size");
  model.experts.shared_count = config.count_or("n_shared_experts", 0, max_experts, 0);
  const std::int64_t first = config.count("first_k_dense_replace", 0, max_layers);
  const std::int64_t every = config.count_or("moe_layer_freq", 1, max_layers, 1);
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    model.has_experts[static_cast<std::size_t>(layer)] = layer >= first && layer % every == 0;
  model.extra_prediction_layers = config.count_or("num_nextn_predict_layers", 0, max_layers, 0);
}

void read_deepseek_v2(const Config& config, ModelDescription& model) {
  read_deepseek(config, model);
  if (config.flag("mlp_bias", false))
    config.fail("mlp_bias",
                "is true; which networks then have biases differs between versions of transformers");
}

void read_deepseek_v3(const Config& config, ModelDescription& model) {
  read_deepseek(config, model);
  model.experts.router_correction = true;
}

void read_gpt_oss(const Config& config, ModelDescription& model) {
  model.attention = grouped_attention(config, model.hidden);
  model.attention.biases = config.flag("attention_bias", true);
  model.attention.sinks = true;
  model.experts.count = num_experts(config, {"num_local_experts", "num_experts"});
  model.experts.intermediate = width(config, "intermediate_size");
  model.experts.biases = model.experts.router_bias = true;
}

struct Family {
  std::string_view model_type;
  void (*read)(const Config&, ModelDescription&);
};

constexpr std::array<Family, 7> families = {{{"mixtral", read_mixtral},
                                             {"qwen3_moe", read_qwen3_moe},
                                             {"olmoe", read_olmoe},
                                             {"deepseek_v2", read_deepseek_v2},
                                             {"deepseek_v3", read_deepseek_v3},
                                             {"kimi_k2", read_deepseek_v3},
                                             {"gpt_oss", read_gpt_oss}}};

const Family& family_of(const Config& config) {
  const std::string type = config.word("model_type");
  for (const Family& family : families)
    if (family.model_type == type) return family;
  std::vector<std::string_view> known;
  for (const Family& family : families) known.push_back(family.model_type);
  config.fail("model_type",
              type.empty() ? "is missing" : fmt::format("is '{}'; known: {}", type, fmt::join(known, ", ")));
}

void read_dtype(const Config& config, ModelDescription& model) {
  constexpr std::array<std::pair<std::string_view, int>, 3> known = {
      {{"bfloat16", 2}, {"float16", 2}, {"float32", 4}}};
  // The older name and the newer one.
  const char* const key = config.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  model.dtype = config.word(key);
  if (model.dtype.empty()) return;
  const auto found = std::ranges::find(known, model.dtype, &std::pair<std::string_view, int>::first);
  if (found == known.end())
    config.fail(key, fmt::format("is '{}'; known: bfloat16, float16, float32", model.dtype));
  model.dtype_bytes = found->second;
}

// In floating point, since a damaged number may make more weights than 63 bits count.
void require_countable(const Config& config, const ModelDescription& model) {
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  const double hidden = real(model.hidden);
  const double ffn = 4 * (hidden + 1) *
                     std::max(real(model.experts.count + model.experts.shared_count) *
                                  (real(model.experts.intermediate) + 1),
                              real(model.dense_intermediate));
  const AttentionShape& attention = model.attention;
  double inner = real(attention.heads + 2 * attention.kv_heads) * real(attention.head_dim);
  double compressed = 0;
  if (attention.latent) {
    inner += real(attention.heads) * real(attention.latent->value_dim);
    compressed = real(attention.latent->query_rank + attention.latent->kv_rank);
  }
  const double layer = ffn + 4 * (hidden + compressed + 1) * (inner + compressed + 1);
  if (real(model.num_layers) * layer + 2 * hidden * real(model.vocabulary) > max_parameters)
    config.fail("", "makes more weights than any machine holds; is one of its numbers damaged?");
}

ModelDescription model_of(const Config& config) {
  const Family& family = family_of(config);
  ModelDescription model;
  model.family = family.model_type;
  model.num_layers = config.count("num_hidden_layers", 1, max_layers);
  model.hidden = width(config, "hidden_size");
  model.vocabulary = config.count("vocab_size", 1, max_vocabulary);
  model.tied_embeddings = config.flag("tie_word_embeddings", false);
  model.has_experts.assign(static_cast<std::size_t>(model.num_layers), true);
  family.read(config, model);
  model.experts.top_k = config.count("num_experts_per_tok", 1, model.experts.count);
  if (model.num_moe_layers() < model.num_layers)
    model.dense_intermediate = width(config, "intermediate_size");
  read_dtype(config, model);
  require_countable(config, model);
  return model;
}

}  // namespace

ModelDescription read_model_description(const std::string& path) {
  return read_model_description(open_source(path));
}

ModelDescription read_model_description(std::shared_ptr<const ByteSource> source) {
  const std::string& file = source->name();
  if (const FileFormat format = detect_format(*source); format != FileFormat::json)
    throw ParseError(file, "", fmt::format("is {}; a model's config is JSON", name_of(format)));
  const internal::JsonDocument json = internal::read_json(*source);
  if (!json.is_object()) throw ParseError(file, "", "is not a JSON object");
  // A model of text and images has its language model's config inside.
  const auto text = json.find("text_config");
  if (text == json.end() || json.contains("num_hidden_layers")) return model_of(Config(json, file, ""));
  if (!text->is_object()) throw ParseError(file, "text_config", "is not a JSON object");
  return model_of(Config(*text, file, "text_config."));
}

}  // namespace evenkeel
