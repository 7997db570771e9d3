#include "evenkeel/model/sorted_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"

namespace evenkeel {

namespace {

using Words = std::vector<std::string>;

// Whether the word is the number of an expert or a layer: "7", "expert_7".
bool is_number(std::string_view word) {
  if (word.starts_with("expert_")) word.remove_prefix(7);
  return !word.empty() && word.size() < 6 && word.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_one_of(std::string_view word, const Words& known) {
  return std::ranges::find(known, word) != known.end();
}

bool has_one_of(std::string_view word, const Words& parts) {
  return std::ranges::any_of(parts,
                             [&](const std::string& part) { return word.find(part) != std::string::npos; });
}

bool any_is(const Words& words, const Words& known) {
  return std::ranges::any_of(words, [&](const std::string& word) { return is_one_of(word, known); });
}

bool any_has(const Words& words, const Words& parts) {
  return std::ranges::any_of(words, [&](const std::string& word) { return has_one_of(word, parts); });
}

Words words_of(const std::string& text) {
  return split(text, ' ');
}

// The lists below match whole words of a tensor's path.
const Words lists_of_layers = words_of("layers blocks h block");
const Words of_router = words_of(
    "gate router wg router_mlp expert_bias e_score_correction_bias moe_statics balancing_biases "
    "fc1_latent_proj "
    "fc2_latent_proj pre_expert_proj post_expert_proj");
// Biases that are added to the scores for choosing experts; not trained by gradients.
const Words corrections = words_of("e_score_correction_bias expert_bias balancing_biases");
const Words of_network_outputs = words_of("down_proj w2 output_linear fc2 wo c_proj linear_fc2 linear_2");
const Words of_attention_outputs = words_of("o_proj out_proj dense wo o_b_proj linear_proj");
// Weights that all heads share, and weights of the indexer (the small network that chooses tokens). Each
// device holds them whole.
const Words of_all_heads = words_of(
    "q_a_proj kv_a_proj_with_mqa wk fused_qkv_a_proj q_gate_proj o_a_proj kv_proj weights_proj indexer");
const Words of_keys = words_of("k_proj v_proj");
// The lists below match parts of words.
const Words norm = {"norm"};
const Words towers = words_of("vis image audio speech tower projector patch sam_model");
// Weights on the residual path around single blocks, and around all of them.
const Words past_blocks = words_of(
    "_hc hc_ hyper_connection residual layer_scalar sconv convolution message_gate attn_res attention_input "
    "mlp_input "
    "final_input message_input");
const Words past_all = words_of("hidden_states queries rotary");
const Words of_attention_alone = words_of("attn attention");
const Words of_attention = words_of("attn attention mamba mixer conv");
const Words of_network = words_of("mlp feed_forward ffn moe mixer per_layer ff");

// Where a tensor belongs: its layer, and the words of its path below the layer, without ".weight" or ".bias".
struct Path {
  Words words;
  std::int64_t layer = no_layer;
  bool bias = false;
  bool tower = false;
  bool prediction = false;  // multi-token prediction, outside of the numbered layers

  bool is(std::string_view word) const { return std::ranges::find(words, word) != words.end(); }
  const std::string& last() const { return words.back(); }
};

Path path_of(const std::string& name) {
  Path path;
  Words words = split(name, '.');
  path.bias = words.back() == "bias" || words.back().ends_with("_proj_bias");
  const std::string_view ending = path.bias ? "_bias" : "_weight";
  if (words.size() > 1 && words.back() == ending.substr(1))
    words.pop_back();
  else if (words.back().ends_with(ending))
    words.back().resize(words.back().size() - ending.size());
  const auto place =
      std::ranges::adjacent_find(words, [](const std::string& list, const std::string& number) {
        return is_one_of(list, lists_of_layers) && is_number(number);
      });
  const Words prefix(words.begin(), place == words.end() ? words.end() : place);
  path.tower = any_has(prefix, towers);
  path.prediction = any_has(prefix, Words{"mtp"});
  if (place == words.end()) {
    path.words = std::move(words);
  } else {
    path.layer = std::stoll(place[1]);
    path.words.assign(place + 2, words.end());
  }
  if (path.words.empty()) path.words.emplace_back(name);
  return path;
}

WeightKind kind_outside(const Path& path) {
  if (any_has(path.words, norm) || any_has(path.words, past_blocks) || any_has(path.words, past_all))
    return WeightKind::norms;
  if (any_is(path.words, Words{"fc", "eh_proj"})) return WeightKind::prediction;
  if (any_is(path.words, Words{"unembed", "output", "embed_out"}) || any_has(path.words, Words{"head"}))
    return WeightKind::head;
  const bool table =
      any_has(path.words, Words{"embed", "per_layer"}) || any_is(path.words, Words{"wte", "shared"});
  return table ? WeightKind::embedding : WeightKind::other;
}

WeightKind kind_in_layer(const Path& path, bool of_experts) {
  const std::string& block = path.words.front();
  const bool routes = any_is(path.words, of_router);
  if (any_has(path.words, Words{"shared_expert", "shared_mlp"})) return WeightKind::shared_experts;
  // Some models have experts in attention too; expert parallelism does not distribute those.
  if (of_experts && !has_one_of(block, of_attention_alone)) return WeightKind::experts;
  // Tensors of the layers of multi-token prediction.
  if (path.is("shared_head")) return path.is("head") ? WeightKind::head : WeightKind::norms;
  if (block == "embed_tokens") return WeightKind::embedding;
  if (block == "eh_proj") return WeightKind::prediction;
  if (has_one_of(block, past_blocks) || has_one_of(block, norm)) return WeightKind::norms;
  // "mixer" may be attention, a network or experts.
  const bool network_mixer =
      block == "mixer" && (routes || path.is("up_proj") || any_is(path.words, of_network_outputs));
  if (has_one_of(block, of_attention) && !network_mixer) return WeightKind::attention;
  if (routes) return WeightKind::router;
  if (!has_one_of(block, of_network)) return WeightKind::other;
  if (any_has(path.words, norm)) return WeightKind::norms;
  const bool of_sum = path.words.size() == 1 && path.bias;  // a bias on the sum of all experts' outputs
  return of_sum ? WeightKind::router : WeightKind::dense;
}

bool is_output(WeightKind kind, const Path& path) {
  const std::string_view name = path.last();
  return kind == WeightKind::attention ? is_one_of(name, of_attention_outputs)
                                       : is_one_of(name, of_network_outputs);
}

// The axis that tensor parallelism usually cuts: the input axis of output projections, the rows of all
// others. Weights that all heads share are not cut.
int usual_axis(const Weight& weight, const Path& path, std::int64_t hidden) {
  const int last = static_cast<int>(weight.shape.size()) - 1;
  switch (weight.kind) {
    case WeightKind::embedding:
    case WeightKind::head:
    case WeightKind::prediction:
      return 0;
    case WeightKind::experts:  // with three axes: the axis that is not the row width
      if (last < 2) return path.bias && !is_output(weight.kind, path) ? last : uncut;
      if (weight.shape[1] == weight.shape[2] || (weight.shape[1] != hidden && weight.shape[2] != hidden))
        return is_output(weight.kind, path) ? 2 : 1;
      return weight.shape[1] == hidden ? 2 : 1;
    case WeightKind::attention:
      if (any_has(path.words, norm) || any_is(path.words, of_all_heads)) return uncut;
      return !is_output(weight.kind, path) ? 0 : path.bias ? uncut : last;
    case WeightKind::dense:
    case WeightKind::shared_experts:
      if (weight.shape[0] == 1) return uncut;
      return is_output(weight.kind, path) ? (last > 0 ? last : uncut) : 0;
    default:
      return uncut;
  }
}

// Limit on layers of multi-token prediction that a config does not name.
constexpr std::int64_t most_unnamed = 16;

class TensorSorter {
 public:
  TensorSorter(ModelDescription& model, std::span<const NamedTensor> tensors)
      : model_(model), tensors_(tensors) {}

  void run() {
    most_layers_ = model_.num_layers + std::ssize(model_.prediction_layers);
    for (const NamedTensor& tensor : tensors_)
      if (product(tensor.shape) > 0) add(tensor);
    for (const auto& [name, stack] : stacks_) require_whole(stack);
    take_layers();
    take_experts();
    model_.experts.shared_width = network_width(WeightKind::shared_experts);
    model_.dense_intermediate = network_width(WeightKind::dense);
  }

 private:
  // Tensors of single experts that become one tensor of all experts.
  struct Stack {
    std::size_t weight = 0;
    std::set<int> experts;
  };

  [[noreturn]] static void fail(const std::string& why, const std::string& right) {
    throw InvalidArgument("model", why, right);
  }

  void add(const NamedTensor& tensor) {
    const Path path = path_of(tensor.name);
    const std::optional<std::size_t> list = experts_in(path, tensor.shape.size());
    const bool one_expert = list && *list + 1 < path.words.size() && is_number(path.words[*list + 1]);
    Weight weight{.layer = layer_of(path, tensor.name),
                  .shape = tensor.shape,
                  .trained = tensor.trained && !any_is(path.words, corrections),
                  .number_bytes = tensor.number_bytes,
                  .name = tensor.name};
    if (weight.shape.empty()) weight.shape = {1};
    if (one_expert) weight.shape.insert(weight.shape.begin(), 1);
    const bool of_experts = list && weight.shape.size() > 1 && !has_one_of(path.last(), norm);
    if (!path.tower)
      weight.kind = path.layer == no_layer ? kind_outside(path) : kind_in_layer(path, of_experts);
    // Layers of multi-token prediction use the model's embedding and head, and the head may be the embedding.
    // Some checkpoints store them twice; the copies are not counted.
    const bool head = weight.kind == WeightKind::head;
    if (weight.layer >= model_.num_layers && (head || weight.kind == WeightKind::embedding)) return;
    if (head && model_.tied_embeddings) return;
    if (one_expert) return add_expert(std::move(weight), path, *list, tensor);
    set_axis(weight, path, tensor.axis);
    model_.weights.push_back(std::move(weight));
  }

  std::int64_t layer_of(const Path& path, const std::string& name) const {
    if (path.tower) return no_layer;
    const std::int64_t layer =
        path.prediction ? model_.num_layers + std::max<std::int64_t>(path.layer, 0) : path.layer;
    if (layer >= (path.prediction ? model_.num_layers + most_unnamed : most_layers_))
      fail(fmt::format("has {}, but its config says {} layers", name, model_.num_layers),
           fmt::format("layers 0..{}", most_layers_ - 1));
    return layer;
  }

  // The position of the word "experts", or of another name for a tensor of all experts.
  static std::optional<std::size_t> experts_in(const Path& path, std::size_t axes) {
    for (std::size_t i = 0; i < path.words.size(); ++i)
      if (path.words[i] == "experts" || (axes == 3 && path.words[i].ends_with("put_linear"))) return i;
    return std::nullopt;
  }

  void add_expert(Weight weight, const Path& path, std::size_t list, const NamedTensor& tensor) {
    const std::string& number = path.words[list + 1];
    const std::size_t at = tensor.name.rfind(path.words[list] + "." + number) + path.words[list].size() + 1;
    const std::string_view name = tensor.name;
    const std::string all = fmt::format("{}*{}", name.substr(0, at), name.substr(at + number.size()));
    const auto [place, is_new] = stacks_.try_emplace(all, Stack{model_.weights.size(), {}});
    Stack& stack = place->second;
    if (!stack.experts.insert(std::stoi(number.substr(number.find_last_of('_') + 1))).second)
      fail(fmt::format("has {} twice", tensor.name), "each expert once");
    if (is_new) {
      set_axis(weight, path, tensor.axis >= 0 ? tensor.axis + 1 : tensor.axis);
      model_.weights.push_back(std::move(weight));
      return;
    }
    Weight& first = model_.weights[stack.weight];
    if (!std::ranges::equal(std::span(first.shape).subspan(1), tensor.shape) ||
        first.number_bytes != tensor.number_bytes)
      fail(fmt::format("has {} of shape [{}], whose shape or type differs from that of {}", tensor.name,
                       fmt::join(tensor.shape, ", "), first.name),
           "the same shape and type for all experts of a layer");
    ++first.shape[0];
  }

  void require_whole(const Stack& stack) const {
    const std::int64_t all = model_.experts.count > 0 ? model_.experts.count : *stack.experts.rbegin() + 1;
    if (*stack.experts.begin() != 0 || *stack.experts.rbegin() + 1 != all || std::ssize(stack.experts) != all)
      fail(fmt::format("has tensors like {} for {} experts, the last numbered {}",
                       model_.weights[stack.weight].name, stack.experts.size(), *stack.experts.rbegin()),
           fmt::format("experts 0..{}", all - 1));
  }

  void set_axis(Weight& weight, const Path& path, int axis) {
    weight.axis = axis == NamedTensor::by_name ? usual_axis(weight, path, model_.hidden) : axis;
    if (axis == NamedTensor::by_name && weight.kind == WeightKind::attention &&
        is_one_of(path.last(), of_keys))
      weight.max_parts = model_.attention.kv_heads;
    if (is_output(weight.kind, path)) outputs_.push_back(model_.weights.size());
  }

  void take_layers() {
    std::int64_t last = model_.num_layers - 1;
    for (const Weight& weight : model_.weights) last = std::max(last, weight.layer);
    std::vector<bool> is_there(static_cast<std::size_t>(last + 1), false);
    std::vector<bool> has = is_there;
    for (const Weight& weight : model_.weights) {
      if (weight.layer == no_layer) continue;
      is_there[static_cast<std::size_t>(weight.layer)] = true;
      if (weight.kind == WeightKind::experts) has[static_cast<std::size_t>(weight.layer)] = true;
    }
    if (const auto gap = std::ranges::find(is_there, false); gap != is_there.end())
      fail(fmt::format("has no weight of layer {}, but its config says {} layers", gap - is_there.begin(),
                       model_.num_layers),
           "a whole model");
    const auto end = has.begin() + model_.num_layers;
    model_.prediction_layers.assign(end, has.end());
    model_.has_experts.assign(has.begin(), end);
  }

  // An expert's intermediate width and row width, from its output projection.
  void take_experts() {
    RoutedExperts& experts = model_.experts;
    std::int64_t numbers = 0, layer = no_layer;
    experts.biases = false;
    for (const Weight& weight : model_.weights) {
      if (weight.kind != WeightKind::experts) continue;
      if (layer == no_layer) layer = weight.layer;
      if (weight.shape.size() < 3)
        experts.biases = true;
      else if (weight.layer == layer)
        numbers += weight.numbers() / weight.shape[0];
    }
    if (layer == no_layer) fail("has no tensor of experts", "a Mixture-of-Experts model");
    for (const std::size_t output : outputs_) {
      const Weight& weight = model_.weights[output];
      if (weight.kind != WeightKind::experts || weight.layer != layer || weight.shape.size() < 3) continue;
      if (experts.count > 0 && weight.shape[0] != experts.count)
        fail(fmt::format("has {} of {} experts, but its config says {}", weight.name, weight.shape[0],
                         experts.count),
             "the same number of experts");
      experts.count = weight.shape[0];
      const std::int64_t rows = weight.shape[1], columns = weight.shape[2];
      experts.intermediate = rows == model_.hidden ? columns : columns == model_.hidden ? rows : columns;
      experts.latent = rows == model_.hidden || columns == model_.hidden ? 0 : rows;
      experts.gated = 2 * numbers > 5 * rows * columns;
      return;
    }
    fail(fmt::format("has experts in layer {} with unknown tensor names", layer),
         "down_proj, w2 or output_linear among their tensors");
  }

  // The intermediate width in the first layer that has a network of this kind.
  std::int64_t network_width(WeightKind kind) const {
    std::int64_t width = 0, layer = no_layer;
    for (const std::size_t output : outputs_) {
      const Weight& weight = model_.weights[output];
      if (weight.kind != kind || weight.shape.size() < 2 || (layer != no_layer && weight.layer != layer))
        continue;
      layer = weight.layer;
      width += weight.numbers() / model_.hidden;
    }
    return width;
  }

  ModelDescription& model_;
  std::span<const NamedTensor> tensors_;
  // Including the layers of multi-token prediction that the config names.
  std::int64_t most_layers_ = 0;
  std::map<std::string, Stack> stacks_;  // by tensor name, with * for the expert
  std::vector<std::size_t> outputs_;     // weights of output projections
};

}  // namespace

void take_weights(ModelDescription& model, std::span<const NamedTensor> tensors) {
  TensorSorter(model, tensors).run();
}

}  // namespace evenkeel
