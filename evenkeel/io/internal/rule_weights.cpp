#include "evenkeel/io/internal/rule_weights.h"

#include <charconv>
#include <set>
#include <utility>

#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

// What a layer has as attention: standard, with wider heads, or a gated delta network in its place.
enum class Mixer { attention, wide_attention, delta };

class RuleWeights {
 public:
  RuleWeights(const ConfigKeys& keys, const WeightRule& rule, const ModelDescription& model)
      : keys_(keys), rule_(rule), model_(model), wide_(model.attention) {}

  std::vector<Weight> make() {
    read_mixers();
    add(WeightKind::embedding, {model_.vocabulary, model_.hidden}, 0);
    for (const bool experts : model_.has_experts) add_layer(++layer_, experts);
    for (const bool experts : model_.prediction_layers) {
      add_layer(++layer_, experts);
      add_norms(3);  // for both input states and the output state
      add(WeightKind::prediction, {model_.hidden, 2 * model_.hidden}, 0);
    }
    layer_ = no_layer;
    add_norms(1);
    if (!model_.tied_embeddings)
      add_linear(WeightKind::head, model_.hidden, model_.vocabulary, 0,
                 !rule_.head_bias.empty() && keys_.flag(rule_.head_bias, false));
    return std::move(weights_);
  }

 private:
  std::int64_t width(std::string_view key) const { return keys_.integer(key, 1, max_width); }
  std::int64_t heads(std::string_view key) const { return keys_.integer(key, 1, max_heads); }

  void add(WeightKind kind, std::vector<std::int64_t> shape, int axis = uncut, std::int64_t max_parts = 0) {
    weights_.push_back({kind, layer_, std::move(shape), axis, max_parts});
  }

  // Weights [out, in]. The bias is cut only if the output axis is cut.
  void add_linear(WeightKind kind, std::int64_t in, std::int64_t out, int axis, bool bias = false,
                  std::int64_t max_parts = 0) {
    add(kind, {out, in}, axis, max_parts);
    if (bias) add(kind, {out}, axis == 0 ? 0 : uncut, max_parts);
  }

  void add_norms(int number) {
    for (int i = 0; i < number * (rule_.norm_biases ? 2 : 1); ++i) add(WeightKind::norms, {model_.hidden});
  }

  // Adds gate, up and down, or only up and down.
  void add_network(WeightKind kind, std::int64_t intermediate) {
    for (int i = 0; i < (rule_.gated ? 2 : 1); ++i) add_linear(kind, model_.hidden, intermediate, 0);
    add_linear(kind, intermediate, model_.hidden, 1);
  }

  void add_layer(std::int64_t layer, bool experts) {
    layer_ = layer;
    add_norms(rule_.norms + (experts ? rule_.expert_norms : 0));
    if (rule_.layer_scalar) add(WeightKind::norms, {1});
    const auto index = static_cast<std::size_t>(layer);
    switch (index < mixers_.size() ? mixers_[index] : Mixer::attention) {
      case Mixer::attention:
        add_attention(model_.attention);
        break;
      case Mixer::wide_attention:
        add_attention(wide_);
        break;
      case Mixer::delta:
        add_delta();
    }
    if (index < indexers_.size() && indexers_[index]) add_indexer();
    if (experts)
      add_experts();
    else
      add_network(WeightKind::dense, model_.dense_intermediate);
  }

  void add_attention(const AttentionShape& shape) {
    const bool biases = !rule_.attention.biases.key.empty() &&
                        keys_.flag(rule_.attention.biases.key, rule_.attention.biases.default_value);
    const bool output_bias = biases && rule_.attention.output_bias;
    if (shape.latent)
      add_latent_attention(shape, biases, output_bias);
    else
      add_grouped_attention(shape, biases, output_bias);
  }

  void add_grouped_attention(const AttentionShape& shape, bool biases, bool output_bias) {
    using Norm = AttentionShape::QueryKeyNorm;
    constexpr WeightKind kind = WeightKind::attention;
    const std::int64_t queries = shape.heads * shape.head_dim;
    const std::int64_t keys = shape.kv_heads * shape.head_dim;
    const bool is_wide = &shape == &wide_;
    add_linear(kind, model_.hidden, (rule_.attention.output_gate ? 2 : 1) * queries, 0, biases, shape.heads);
    for (int i = 0; i < (is_wide && values_are_keys_ ? 1 : 2); ++i)
      add_linear(kind, model_.hidden, keys, 0, biases, shape.kv_heads);
    add_linear(kind, queries, model_.hidden, 1, output_bias, shape.heads);
    if (shape.query_key_norm == Norm::per_head)
      for (int i = 0; i < 2; ++i) add(kind, {shape.head_dim});
    if (shape.query_key_norm == Norm::whole)
      for (const std::int64_t count : {shape.heads, shape.kv_heads})
        add(kind, {count * shape.head_dim}, 0, count);
    if (rule_.attention.sinks) add(kind, {shape.heads}, 0);
  }

  // The low-rank parts, which all heads share, are whole on each device.
  void add_latent_attention(const AttentionShape& shape, bool biases, bool output_bias) {
    const LatentAttention& latent = *shape.latent;
    constexpr WeightKind kind = WeightKind::attention;
    if (latent.query_rank > 0) {
      add_linear(kind, model_.hidden, latent.query_rank, uncut, biases);
      add(kind, {latent.query_rank});
    }
    add_linear(kind, query_input(), shape.heads * latent.query_dim(), 0);
    add_linear(kind, model_.hidden, latent.kv_rank + latent.rope_dim, uncut, biases);
    add(kind, {latent.kv_rank});
    add_linear(kind, latent.kv_rank, shape.heads * (latent.nope_dim + latent.value_dim), 0);
    add_linear(kind, shape.heads * latent.value_dim, model_.hidden, 1, output_bias);
  }

  std::int64_t query_input() const {
    const std::int64_t rank = model_.attention.latent->query_rank;
    return rank > 0 ? rank : model_.hidden;
  }

  // The indexer, a small network that chooses the tokens to attend to; each device has all of it. It has
  // queries, one key for all heads with scale and shift of its norm, and a weight for each head.
  void add_indexer() {
    constexpr WeightKind kind = WeightKind::attention;
    const std::int64_t head_dim = width("index_head_dim");
    add_linear(kind, query_input(), heads("index_n_heads") * head_dim, uncut);
    add_linear(kind, model_.hidden, head_dim, uncut);
    for (int i = 0; i < 2; ++i) add(kind, {head_dim});
    add_linear(kind, model_.hidden, heads("index_n_heads"), uncut);
  }

  // A gated delta network: one projection for queries, keys, values, the output gate and two numbers a value
  // head; the convolution; A and the bias of the time step; the norm of a head; the output projection.
  void add_delta() {
    constexpr WeightKind kind = WeightKind::attention;
    const std::int64_t value_heads = heads("linear_num_value_heads");
    const std::int64_t keys = heads("linear_num_key_heads") * width("linear_key_head_dim");
    const std::int64_t values = value_heads * width("linear_value_head_dim");
    add_linear(kind, model_.hidden, 2 * keys + 2 * values + 2 * value_heads, 0);
    add(kind, {2 * keys + values, width("linear_conv_kernel_dim")}, 0);
    for (int i = 0; i < 2; ++i) add(kind, {value_heads}, 0);
    add(kind, {width("linear_value_head_dim")});
    add_linear(kind, values, model_.hidden, 1);
  }

  void add_experts() {
    const RoutedExperts& experts = model_.experts;
    const std::int64_t row = model_.expert_row_width();
    const std::int64_t inward = (experts.gated ? 2 : 1) * experts.intermediate;
    add_linear(WeightKind::router, model_.hidden, experts.count, uncut, rule_.router_bias);
    if (rule_.router_correction) {
      add(WeightKind::router, {experts.count});
      weights_.back().trained = false;
    }
    if (rule_.router_scales) {
      add(WeightKind::router, {model_.hidden});
      add(WeightKind::router, {experts.count});
    }
    add(WeightKind::experts, {experts.count, inward, row}, 1);
    add(WeightKind::experts, {experts.count, row, experts.intermediate}, 2);
    if (experts.biases) {
      add(WeightKind::experts, {experts.count, inward}, 1);
      add(WeightKind::experts, {experts.count, row});
    }
    if (experts.shared_width == 0) return;
    add_network(WeightKind::shared_experts, experts.shared_width);
    if (rule_.shared_gate) add(WeightKind::shared_experts, {1, model_.hidden});
  }

  void read_mixers() {
    if (rule_.delta) read_linear_layers();
    if (rule_.attention.wide_layers) read_wide_layers();
    if (rule_.attention.indexer) read_indexers();
  }

  // One value for each layer, by the meaning of its word in a list.
  template <class Part>
  std::vector<Part> by_layer(std::string_view key, const KnownWords<Part>& known) const {
    const std::vector<std::string> words = keys_.words(key);
    if (std::ssize(words) != model_.num_layers)
      keys_.fail(key, "has entries for {} layers, but the model has {}", words.size(), model_.num_layers);
    return keys_.meanings(key, words, known);
  }

  // From a list; without one, every n-th layer has full attention and the others are linear.
  void read_linear_layers() {
    for (const std::string_view list : {"layer_types", "layers_block_type"})
      if (keys_.is_there(list)) {
        mixers_ = by_layer<Mixer>(list, {{"linear_attention", Mixer::delta},
                                         {"full_attention", Mixer::attention},
                                         {"attention", Mixer::attention}});
        return;
      }
    const int every = keys_.integer_or("full_attention_interval", 1, max_layers, 4);
    for (std::int64_t layer = 0; layer < model_.num_layers; ++layer)
      mixers_.push_back((layer + 1) % every == 0 ? Mixer::attention : Mixer::delta);
  }

  // Which layers have an indexer; the others reuse the choice of the layer before.
  void read_indexers() {
    indexers_.assign(static_cast<std::size_t>(model_.num_layers), true);
    if (keys_.is_there("indexer_types"))
      indexers_ = by_layer<bool>("indexer_types", {{"full", true}, {"shared", false}});
    else if (keys_.is_there("index_topk_pattern") ||
             keys_.integer_or("index_topk_freq", 1, max_layers, 1) != 1)
      keys_.fail("indexer_types", "is missing, but other keys say that layers share their indexers");
  }

  // Gemma 4: layers with full attention have wider heads and fewer key heads, and may use keys as values.
  void read_wide_layers() {
    mixers_ = by_layer<Mixer>(
        "layer_types", {{"full_attention", Mixer::wide_attention}, {"sliding_attention", Mixer::attention}});
    values_are_keys_ = keys_.flag("attention_k_eq_v", false);
    if (keys_.is_there("per_layer_config")) return read_wide_shape(keys_.at("per_layer_config"));
    wide_.head_dim = keys_.integer_or("global_head_dim", 1, max_width, 512);
    if (values_are_keys_ && keys_.is_there("num_global_key_value_heads"))
      wide_.kv_heads = key_heads(keys_, "num_global_key_value_heads", wide_.heads);
  }

  // Reads an object that has one key per layer with wide attention: the layer's number, possibly with leading
  // zeros. The value is an object with the layer's attention shape.
  void read_wide_shape(const JsonField& each) {
    if (!each->is_object()) each.fail("is not a JSON object");
    std::set<std::size_t> stated, wanted;
    for (std::size_t layer = 0; layer < mixers_.size(); ++layer)
      if (mixers_[layer] == Mixer::wide_attention) wanted.insert(layer);
    const AttentionShape& narrow = model_.attention;
    for (const auto& [name, value] : each->items()) {
      std::size_t layer = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
      if (error != std::errc{} || end != name.data() + name.size() || !value.is_object())
        each.fail("has '{}'; each key must be a layer number, and each value an object", name);
      if (!stated.insert(layer).second) each.fail("has layer {} twice", layer);
      const ConfigKeys config(each[name]);
      const std::int64_t head_dim =
          config.integer_or("head_dim", 1, max_width, static_cast<int>(narrow.head_dim));
      const std::int64_t kv_heads =
          config.integer_or("num_key_value_heads", 1, max_heads, static_cast<int>(narrow.kv_heads));
      const auto require_alike = [&](const char* key, std::int64_t number, std::int64_t before) {
        if (stated.size() > 1 && number != before)
          config.fail(key, "differs from that of other layers with full attention: {}, not {}", number,
                      before);
      };
      require_alike("head_dim", head_dim, wide_.head_dim);
      require_alike("num_key_value_heads", kv_heads, wide_.kv_heads);
      wide_.head_dim = head_dim;
      wide_.kv_heads = kv_heads;
    }
    if (stated != wanted)
      each.fail("has layers {}, but the layers with full attention are {}", fmt::join(stated, ", "),
                fmt::join(wanted, ", "));
  }

  const ConfigKeys& keys_;
  const WeightRule& rule_;
  const ModelDescription& model_;
  AttentionShape wide_;           // for layers with full attention, if their heads are wider
  bool values_are_keys_ = false;  // in layers with wide attention
  std::vector<Mixer> mixers_;     // by layer; empty: all attention
  std::vector<bool> indexers_;
  std::int64_t layer_ = no_layer;  // the layer whose weights are being added
  std::vector<Weight> weights_;
};

}  // namespace

std::int64_t key_heads(const ConfigKeys& keys, std::string_view key, std::int64_t heads) {
  const int number = keys.integer(key, 1, max_heads);
  if (heads % number != 0) keys.fail(key, "is {}, which does not divide the {} heads", number, heads);
  return number;
}

std::vector<Weight> weights_by_rule(const ConfigKeys& keys, const WeightRule& rule,
                                    const ModelDescription& model) {
  return RuleWeights(keys, rule, model).make();
}

}  // namespace evenkeel::internal
