#include "evenkeel/model/sorted_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"

namespace evenkeel {

namespace {

using Words = std::vector<std::string>;

// An expert's or a layer's: "7", "expert_7".
bool is_number(std::string_view word) {
  if (word.starts_with("expert_")) word.remove_prefix(7);
  return !word.empty() && word.size() < 6 && word.find_first_not_of("0123456789") == std::string_view::npos;
}

bool has(std::string_view word, std::string_view part) {
  return word.find(part) != std::string_view::npos;
}

bool is_one_of(std::string_view word, const Words& words) {
  return std::ranges::find(words, word) != words.end();
}

bool has_one_of(std::string_view word, const Words& parts) {
  return std::ranges::any_of(parts, [&](const std::string& part) { return has(word, part); });
}

bool any_is(const Words& words, const Words& known) {
  return std::ranges::any_of(words, [&](const std::string& word) { return is_one_of(word, known); });
}

bool any_has(const Words& words, std::string_view part) {
  return std::ranges::any_of(words, [&](const std::string& word) { return has(word, part); });
}

Words words_of(const std::string& text) {
  return split(text, ' ');
}

const Words lists_of_layers = words_of("layers blocks h block");
const Words towers = words_of("vis image audio speech tower projector patch sam_model");
const Words past_blocks =
    words_of("_hc hc_ hyper_connection residual layer_scalar sconv convolution message_gate");
const Words of_attention = words_of("attn attention mamba mixer conv");
const Words of_router = words_of(
    "gate router expert_bias e_score_correction_bias moe_statics fc1_latent_proj fc2_latent_proj "
    "pre_expert_proj post_expert_proj wg router_mlp balancing_biases");
const Words of_network = words_of("mlp feed_forward ffn block_sparse_moe moe mixer per_layer ff");
const Words of_network_outputs = words_of("down_proj w2 output_linear fc2 wo c_proj linear_fc2 linear_2");
const Words of_attention_outputs = words_of("o_proj out_proj dense wo o_b_proj linear_proj");
const Words of_all_heads =
    words_of("q_a_proj kv_a_proj_with_mqa wk fused_qkv_a_proj q_gate_proj o_a_proj kv_proj weights_proj");
const Words of_keys = words_of("k_proj v_proj");

// A tensor's place: the layer, and the words of its path below it, without ".weight" or ".bias".
struct Path {
  Words words;
  std::string model;  // before the layers, where there may be several lists of them
  std::int64_t layer = no_layer;
  bool bias = false;
  bool tower = false;
  bool prediction = false;  // MTP, outside of the numbered layers

  bool is(std::string_view word) const { return is_one_of(word, words); }
  const std::string& last() const { return words.back(); }
};

Path path_of(const std::string& name) {
  Path path;
  Words words = split(name, '.');
  path.bias = words.back() == "bias" || words.back().ends_with("_proj_bias");
  if (words.size() > 1 && (words.back() == "weight" || words.back() == "bias"))
    words.pop_back();
  else if (path.bias)
    words.back().resize(words.back().size() - 5);
  const auto place =
      std::ranges::adjacent_find(words, [](const std::string& list, const std::string& number) {
        return is_one_of(list, lists_of_layers) && is_number(number);
      });
  path.tower = std::any_of(words.begin(), place, [](const auto& word) { return has_one_of(word, towers); });
  path.prediction = std::any_of(words.begin(), place, [](const auto& word) { return has(word, "mtp"); });
  if (place == words.end()) {
    path.words = std::move(words);
  } else {
    path.layer = std::stoll(place[1]);
    path.model = words.front();
    path.words.assign(place + 2, words.end());
  }
  if (path.words.empty()) path.words.emplace_back(name);
  return path;
}

WeightKind kind_outside(const Path& path) {
  if (any_has(path.words, "norm")) return WeightKind::norms;
  for (const std::string& word : path.words)
    if (has_one_of(word, past_blocks) || word.ends_with("_input") || has(word, "hidden_states") ||
        has(word, "rotary"))
      return WeightKind::norms;
  if (path.is("fc") || path.is("eh_proj")) return WeightKind::prediction;
  if (any_has(path.words, "embed") || path.is("wte") || path.is("shared") || any_has(path.words, "per_layer"))
    return WeightKind::embedding;
  if (any_has(path.words, "head") || path.is("output") || path.is("embed_out")) return WeightKind::head;
  return WeightKind::other;
}

WeightKind kind_in_layer(const Path& path, bool of_each_expert) {
  const std::string& block = path.words.front();
  if (any_has(path.words, "shared_expert") || path.is("shared_mlp")) return WeightKind::shared_experts;
  const bool norm = has(block, "norm");
  // Some have experts in attention's place, which nobody spreads.
  if (of_each_expert && !has(block, "attn") && !has(block, "attention")) return WeightKind::experts;
  if (path.is("shared_head")) return path.is("head") ? WeightKind::head : WeightKind::norms;
  if (has_one_of(block, past_blocks) || block.ends_with("_input")) return WeightKind::norms;
  const bool network = has_one_of(block, of_network), router = any_is(path.words, of_router);
  // A layer of one block calls it a mixer, be it attention or a network.
  const bool mixes_nothing =
      block == "mixer" && (router || path.is("up_proj") || any_is(path.words, of_network_outputs));
  if (!norm && !mixes_nothing && has_one_of(block, of_attention)) return WeightKind::attention;
  if (norm || (network && !router && any_has(path.words, "norm"))) return WeightKind::norms;
  if (router) return WeightKind::router;
  if (block == "embed_tokens") return WeightKind::embedding;
  if (block == "eh_proj") return WeightKind::prediction;
  if (!network) return WeightKind::other;
  return path.words.size() == 1 && path.bias ? WeightKind::router : WeightKind::dense;  // of the experts' sum
}

bool is_output(WeightKind kind, const Path& path) {
  const std::string_view name = path.last();
  return kind == WeightKind::attention ? is_one_of(name, of_attention_outputs)
                                       : is_one_of(name, of_network_outputs);
}

// How tensor parallelism usually cuts it: outputs by their inputs, all else by rows, where heads share
// nothing.
int usual_axis(const Weight& weight, const Path& path, std::int64_t hidden) {
  const int last = static_cast<int>(weight.shape.size()) - 1;
  switch (weight.kind) {
    case WeightKind::embedding:
    case WeightKind::head:
    case WeightKind::prediction:
      return 0;
    case WeightKind::experts:  // of three axes the one that is no row's width
      if (last < 2) return path.bias && !is_output(weight.kind, path) ? last : uncut;
      if (weight.shape[1] == weight.shape[2] || (weight.shape[1] != hidden && weight.shape[2] != hidden))
        return is_output(weight.kind, path) ? 2 : 1;
      return weight.shape[1] == hidden ? 2 : 1;
    case WeightKind::attention:
      if (any_has(path.words, "norm") || is_one_of(path.last(), of_all_heads)) return uncut;
      return !is_output(weight.kind, path) ? 0 : path.bias ? uncut : last;
    case WeightKind::dense:
    case WeightKind::shared_experts:
      if (weight.shape[0] == 1) return uncut;
      return is_output(weight.kind, path) ? (last > 0 ? last : uncut) : 0;
    default:
      return uncut;
  }
}

class Sorting {
 public:
  Sorting(ModelDescription& model, std::span<const NamedTensor> tensors) : model_(model), tensors_(tensors) {}

  void run() {
    for (const NamedTensor& tensor : tensors_) add(tensor);
    take_layers();
    take_experts();
    model_.experts.shared_width = network_width(WeightKind::shared_experts);
    model_.dense_intermediate = network_width(WeightKind::dense);
  }

 private:
  void add(const NamedTensor& tensor) {
    const Path path = path_of(tensor.name);
    const std::optional<std::size_t> list = experts_in(path, tensor.shape.size());
    const bool one_expert = list && *list + 1 < path.words.size() && is_number(path.words[*list + 1]);
    std::vector<std::int64_t> shape = tensor.shape;
    if (std::ranges::count(shape, 0) > 0) return;
    if (shape.empty()) shape = {1};
    if (one_expert) shape.insert(shape.begin(), 1);
    const bool all_experts = list && shape.size() > 1 && !has(path.last(), "norm");
    Weight weight{.shape = std::move(shape), .number_bytes = tensor.number_bytes, .name = tensor.name};
    if (!path.tower) {
      weight.layer = path.prediction ? model_.num_layers + std::max<std::int64_t>(path.layer, 0) : path.layer;
      weight.kind =
          path.layer == no_layer ? kind_outside(path) : kind_in_layer(path, one_expert || all_experts);
    }
    // Layers for further tokens have the model's own embedding and head, which some checkpoints repeat.
    const bool repeated = weight.layer >= model_.num_layers &&
                          (weight.kind == WeightKind::embedding || weight.kind == WeightKind::head);
    if (repeated) return;
    if (one_expert) return add_expert(std::move(weight), path, *list, tensor.axis);
    set_axis(weight, path, tensor.axis);
    model_.weights.push_back(std::move(weight));
  }

  // The word "experts", or that of a stack by another name.
  static std::optional<std::size_t> experts_in(const Path& path, std::size_t axes) {
    for (std::size_t i = 0; i < path.words.size(); ++i)
      if (path.words[i] == "experts" || (axes == 3 && path.words[i].ends_with("put_linear"))) return i;
    return std::nullopt;
  }

  // Tensors of one expert each become one of all.
  void add_expert(Weight weight, const Path& path, std::size_t list, int axis) {
    std::string all = fmt::format("{}:{}:", path.model, weight.layer);
    for (std::size_t i = 0; i < path.words.size(); ++i)
      all += (i == list + 1 ? std::string("*") : path.words[i]) + ".";
    const auto [stacked, is_new] = stacked_.try_emplace(all, model_.weights.size());
    if (!is_new) {
      ++model_.weights[stacked->second].shape[0];
      return;
    }
    set_axis(weight, path, axis >= 0 ? axis + 1 : axis);
    model_.weights.push_back(std::move(weight));
  }

  void set_axis(Weight& weight, const Path& path, int axis) {
    weight.axis = axis == NamedTensor::by_name ? usual_axis(weight, path, model_.hidden) : axis;
    if (axis == NamedTensor::by_name && weight.kind == WeightKind::attention &&
        is_one_of(path.last(), of_keys))
      weight.most_parts = model_.attention.kv_heads;
    if (is_output(weight.kind, path)) outputs_.push_back(model_.weights.size());
  }

  void take_layers() {
    std::int64_t last = model_.num_layers - 1;
    for (const Weight& weight : model_.weights) last = std::max(last, weight.layer);
    std::vector<bool> has(static_cast<std::size_t>(last + 1), false);
    for (const Weight& weight : model_.weights)
      if (weight.kind == WeightKind::experts) has[static_cast<std::size_t>(weight.layer)] = true;
    const auto end = has.begin() + model_.num_layers;
    model_.prediction_layers.assign(end, has.end());
    model_.has_experts.assign(has.begin(), end);
  }

  // An expert's width and its row's, by what experts give.
  void take_experts() {
    RoutedExperts& experts = model_.experts;
    std::int64_t numbers = 0, layer = no_layer;
    experts.biases = false;
    for (const Weight& weight : model_.weights) {
      if (weight.kind != WeightKind::experts) continue;
      if (layer == no_layer) layer = weight.layer;
      experts.count = std::max(experts.count, weight.shape[0]);
      if (weight.shape.size() < 3)
        experts.biases = true;
      else if (weight.layer == layer)
        numbers += weight.numbers() / weight.shape[0];
    }
    if (layer == no_layer)
      throw InvalidArgument("model", "has no tensor that is an expert's", "a Mixture-of-Experts model");
    for (const std::size_t output : outputs_) {
      const Weight& weight = model_.weights[output];
      if (weight.kind != WeightKind::experts || weight.layer != layer || weight.shape.size() < 3) continue;
      const std::int64_t rows = weight.shape[1], columns = weight.shape[2];
      const bool turned = columns == model_.hidden && rows != model_.hidden;
      experts.intermediate = turned ? rows : columns;
      experts.latent = turned || rows == model_.hidden ? 0 : rows;
      experts.gated = 2 * numbers > 5 * rows * columns;
      return;
    }
    throw InvalidArgument("model", fmt::format("has experts in layer {} of no known names", layer),
                          "down_proj, w2 or output_linear among their tensors");
  }

  // Of the first layer that has such a network.
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
  std::map<std::string, std::size_t> stacked_;  // by the name with * for the expert
  std::vector<std::size_t> outputs_;            // weights that give what a block gives
};

}  // namespace

void take_weights(ModelDescription& model, std::span<const NamedTensor> tensors) {
  Sorting(model, tensors).run();
}

}  // namespace evenkeel
