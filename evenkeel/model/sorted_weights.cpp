#include "evenkeel/model/sorted_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"

namespace evenkeel {

namespace {

using namespace std::string_view_literals;
using Words = std::vector<std::string>;
using Known = std::span<const std::string_view>;

// An expert's or a layer's: "7", "expert_7".
bool is_number(std::string_view word) {
  if (word.starts_with("expert_")) word.remove_prefix(7);
  return !word.empty() && word.size() < 10 && word.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_one_of(std::string_view word, Known known) {
  return std::ranges::find(known, word) != known.end();
}

bool has_one_of(std::string_view word, Known parts) {
  return std::ranges::any_of(parts, [&](auto part) { return word.find(part) != std::string_view::npos; });
}

bool any_is(const Words& words, Known known) {
  return std::ranges::any_of(words, [&](const std::string& word) { return is_one_of(word, known); });
}

bool any_has(const Words& words, Known parts) {
  return std::ranges::any_of(words, [&](const std::string& word) { return has_one_of(word, parts); });
}

// Whole words of a tensor's path.
constexpr std::array lists_of_layers = {"layers"sv, "blocks"sv, "h"sv, "block"sv};
constexpr std::array of_router = {"gate"sv,
                                  "router"sv,
                                  "wg"sv,
                                  "router_mlp"sv,
                                  "expert_bias"sv,
                                  "e_score_correction_bias"sv,
                                  "moe_statics"sv,
                                  "balancing_biases"sv,
                                  "fc1_latent_proj"sv,
                                  "fc2_latent_proj"sv,
                                  "pre_expert_proj"sv,
                                  "post_expert_proj"sv};
// Added to scores for choosing experts, and no gradient's.
constexpr std::array corrections = {"e_score_correction_bias"sv, "expert_bias"sv, "balancing_biases"sv};
constexpr std::array of_network_outputs = {"down_proj"sv, "w2"sv,     "output_linear"sv, "fc2"sv,
                                           "wo"sv,        "c_proj"sv, "linear_fc2"sv,    "linear_2"sv};
constexpr std::array of_attention_outputs = {"o_proj"sv, "out_proj"sv, "dense"sv,
                                             "wo"sv,     "o_b_proj"sv, "linear_proj"sv};
// What all heads share, so that each device of tensor parallelism has it whole.
constexpr std::array of_all_heads = {"q_a_proj"sv,         "kv_a_proj_with_mqa"sv, "wk"sv,
                                     "fused_qkv_a_proj"sv, "q_gate_proj"sv,        "o_a_proj"sv,
                                     "kv_proj"sv,          "weights_proj"sv};
constexpr std::array of_keys = {"k_proj"sv, "v_proj"sv};
// Parts of words.
constexpr std::array norm = {"norm"sv};
constexpr std::array towers = {"vis"sv,   "image"sv,     "audio"sv, "speech"sv,
                               "tower"sv, "projector"sv, "patch"sv, "sam_model"sv};
// Of what stands on the way past the blocks.
constexpr std::array past_blocks = {
    "_hc"sv,       "hc_"sv,         "hyper_connection"sv, "residual"sv, "layer_scalar"sv,
    "sconv"sv,     "convolution"sv, "message_gate"sv,     "attn_res"sv, "attention_input"sv,
    "mlp_input"sv, "final_input"sv, "message_input"sv};
constexpr std::array past_all = {"hidden_states"sv, "queries"sv, "rotary"sv};
constexpr std::array attention_alone = {"attn"sv, "attention"sv};
constexpr std::array of_attention = {"attn"sv, "attention"sv, "mamba"sv, "mixer"sv, "conv"sv};
constexpr std::array of_network = {"mlp"sv,   "feed_forward"sv, "ffn"sv, "moe"sv,
                                   "mixer"sv, "per_layer"sv,    "ff"sv};

// A tensor's place: the layer, and the words of its path below it, without ".weight" or ".bias".
struct Path {
  Words words;
  std::string model;  // before the layers, where there may be several lists of them
  std::int64_t layer = no_layer;
  bool bias = false;
  bool tower = false;
  bool prediction = false;  // MTP, outside of the numbered layers

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
  path.prediction = any_has(prefix, std::array{"mtp"sv});
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
  if (any_has(path.words, norm) || any_has(path.words, past_blocks) || any_has(path.words, past_all))
    return WeightKind::norms;
  if (any_is(path.words, std::array{"fc"sv, "eh_proj"sv})) return WeightKind::prediction;
  if (any_is(path.words, std::array{"unembed"sv, "output"sv, "embed_out"sv}) ||
      any_has(path.words, std::array{"head"sv}))
    return WeightKind::head;
  const bool table = any_has(path.words, std::array{"embed"sv, "per_layer"sv}) ||
                     any_is(path.words, std::array{"wte"sv, "shared"sv});
  return table ? WeightKind::embedding : WeightKind::other;
}

WeightKind kind_in_layer(const Path& path, bool of_experts) {
  const std::string& block = path.words.front();
  const bool routes = any_is(path.words, of_router);
  if (any_has(path.words, std::array{"shared_expert"sv, "shared_mlp"sv})) return WeightKind::shared_experts;
  // Some have experts in attention's place, which nobody spreads.
  if (of_experts && !has_one_of(block, attention_alone)) return WeightKind::experts;
  // Layers for further tokens.
  if (path.is("shared_head")) return path.is("head") ? WeightKind::head : WeightKind::norms;
  if (block == "embed_tokens") return WeightKind::embedding;
  if (block == "eh_proj") return WeightKind::prediction;
  if (has_one_of(block, past_blocks) || has_one_of(block, norm)) return WeightKind::norms;
  // One word for attention, networks and experts.
  const bool network_mixer =
      block == "mixer" && (routes || path.is("up_proj") || any_is(path.words, of_network_outputs));
  if (has_one_of(block, of_attention) && !network_mixer) return WeightKind::attention;
  if (routes) return WeightKind::router;
  if (!has_one_of(block, of_network)) return WeightKind::other;
  if (any_has(path.words, norm)) return WeightKind::norms;
  const bool of_sum = path.words.size() == 1 && path.bias;  // of all experts' outputs
  return of_sum ? WeightKind::router : WeightKind::dense;
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
      // The indexer, a small network that chooses tokens, is whole too.
      if (any_has(path.words, norm) || path.is("indexer") || is_one_of(path.last(), of_all_heads))
        return uncut;
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
    Path path = path_of(tensor.name);
    const std::optional<std::size_t> list = experts_in(path, tensor.shape.size());
    const bool one_expert = list && *list + 1 < path.words.size() && is_number(path.words[*list + 1]);
    std::vector<std::int64_t> shape = tensor.shape;
    if (shape.empty()) shape = {1};
    if (one_expert) shape.insert(shape.begin(), 1);
    const bool all_experts = list && shape.size() > 1 && !has_one_of(path.last(), norm);
    Weight weight{.shape = std::move(shape),
                  .trained = tensor.trained && !any_is(path.words, corrections),
                  .number_bytes = tensor.number_bytes,
                  .name = tensor.name};
    if (path.prediction)
      weight.layer = model_.num_layers + std::max<std::int64_t>(path.layer, 0);
    else
      weight.layer = path.layer;
    if (path.tower)
      weight.layer = no_layer;
    else
      weight.kind =
          path.layer == no_layer ? kind_outside(path) : kind_in_layer(path, one_expert || all_experts);
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
      experts.intermediate = rows == model_.hidden ? columns : columns == model_.hidden ? rows : columns;
      experts.latent = rows == model_.hidden || columns == model_.hidden ? 0 : rows;
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
