#include "evenkeel/io/internal/layer_caches.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "evenkeel/io/internal/rule_weights.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using Unit = CacheShape::Unit;
using Caches = std::vector<CacheShape>;

// What a layer has as attention or instead of attention, by the words and letters of lists in the config.
enum class Block { full, window, linear, sparse, heavy, none };
const KnownWords<Block> block_words = {{"full_attention", Block::full},
                                       {"attention", Block::full},
                                       {"indexed_attention", Block::full},
                                       {"*", Block::full},
                                       {"sliding_attention", Block::window},
                                       {"chunked_attention", Block::window},
                                       {"linear_attention", Block::linear},
                                       {"mamba", Block::linear},
                                       {"conv", Block::linear},
                                       {"M", Block::linear},
                                       {"compressed_sparse_attention", Block::sparse},
                                       {"heavily_compressed_attention", Block::heavy},
                                       {"moe", Block::none},
                                       {"mlp", Block::none},
                                       {"E", Block::none},
                                       {"-", Block::none}};
constexpr int max_window = 1 << 30;

class LayerCaches {
 public:
  LayerCaches(const ConfigKeys& keys, const AttentionRule& rule, ModelDescription& model)
      : keys_(keys), rule_(rule), model_(model) {}

  std::vector<Caches> make() {
    read_window();
    const std::vector<Block> blocks = read_blocks();
    std::vector<Caches> caches;
    for (std::size_t layer = 0; layer < blocks.size(); ++layer)
      caches.push_back(of_block(blocks[layer], static_cast<int>(layer)));
    return caches;
  }

 private:
  std::int64_t number(std::string_view key, int absent = 0) const {
    return keys_.integer_or(key, 0, max_width, absent);
  }

  void note(std::string text) {
    if (std::ranges::find(model_.cache_notes, text) == model_.cache_notes.end())
      model_.cache_notes.push_back(std::move(text));
  }

  void read_window() {
    const std::string_view key = keys_.is_there("sliding_window") ? "sliding_window" : "attention_chunk_size";
    // Qwen's classes have no window unless a switch turns it on.
    const bool on = keys_.flag("use_sliding_window", !model_.family.starts_with("qwen"));
    if (keys_.is_there(key) && !keys_.is_list(key) && on) window_ = keys_.integer(key, 0, max_window);
  }

  std::vector<Block> read_blocks() {
    for (const std::string_view key : {"layer_types", "layers_block_type"})
      if (keys_.is_list(key)) return read_words(key, keys_.words(key));
    if (keys_.is_there("hybrid_override_pattern"))
      return read_words("hybrid_override_pattern", keys_.letters("hybrid_override_pattern"));
    if (keys_.is_list("compress_ratios")) return read_ratios();
    std::vector<Block> blocks(static_cast<std::size_t>(model_.num_layers), Block::full);
    const bool linear = keys_.is_there("linear_num_value_heads");
    const int every = linear ? keys_.integer_or("full_attention_interval", 1, max_layers, 4)
                             : keys_.integer_or("sliding_window_pattern", 1, max_layers, rule_.full_every);
    const std::int64_t first = number("max_window_layers");
    for (std::int64_t layer = 0; layer < model_.num_layers; ++layer) {
      Block& block = blocks[static_cast<std::size_t>(layer)];
      if (every > 0 && (linear || window_ > 0))
        block = (layer + 1) % every == 0 ? Block::full : linear ? Block::linear : Block::window;
      else if (window_ > 0)
        block = layer >= first ? Block::window : Block::full;
    }
    return blocks;
  }

  // A list may also cover layers of multi-token prediction.
  std::vector<Block> read_words(std::string_view key, const std::vector<std::string>& words) {
    if (std::ssize(words) < model_.num_layers)
      keys_.fail(key, "has entries for {} layers, but the model has {}", words.size(), model_.num_layers);
    std::vector<Block> blocks;
    for (const std::string& word : words) {
      const auto known = std::ranges::find(block_words, word, &std::pair<std::string_view, Block>::first);
      if (known == block_words.end())
        note(fmt::format("{} has '{}', whose cache is counted like that of full attention", keys_.name(key),
                         word));
      blocks.push_back(known == block_words.end() ? Block::full : known->second);
    }
    blocks.resize(static_cast<std::size_t>(model_.num_layers));
    return blocks;
  }

  // DeepSeek-V4: compress_ratios gives the number of tokens that share a key, by layer.
  std::vector<Block> read_ratios() {
    std::vector<Block> blocks;
    for (const std::int64_t ratio : keys_.at("compress_ratios").integers())
      blocks.push_back(ratio == 0                                        ? Block::window
                       : ratio == rate("compressed_sparse_attention", 4) ? Block::sparse
                                                                         : Block::heavy);
    if (std::ssize(blocks) < model_.num_layers)
      keys_.fail("compress_ratios", "has entries for {} layers, but the model has {}", blocks.size(),
                 model_.num_layers);
    blocks.resize(static_cast<std::size_t>(model_.num_layers));
    return blocks;
  }

  std::int64_t rate(std::string_view kind, int usual) const {
    if (!keys_.is_there("compress_rates")) return usual;
    return ConfigKeys(keys_.at("compress_rates")).integer_or(kind, 1, max_width, usual);
  }

  Caches of_block(Block block, int layer) {
    switch (block) {
      case Block::none:
        return {};
      case Block::linear:
        return of_linear();
      case Block::window:
        if (window_ == 0)
          note("some layers have an attention window whose size no key gives: their whole cache is counted");
        return of_attention(window_, layer, false);
      case Block::full:
        return of_attention(0, layer, true);
      case Block::sparse:
        return {keys_of(window_), keys_of(0, rate("compressed_sparse_attention", 4)),
                index_key(rate("compressed_sparse_attention", 4))};
      case Block::heavy:
        return {keys_of(window_), keys_of(0, rate("heavily_compressed_attention", 128))};
    }
    return {};
  }

  // A cache of keys that serve as values too.
  CacheShape keys_of(std::int64_t window, std::int64_t tokens = 1) const {
    return {.numbers = model_.attention.head_dim, .tokens = tokens, .window = window};
  }

  CacheShape index_key(std::int64_t tokens = 1) const {
    return {.numbers = number("index_head_dim"), .tokens = tokens, .unit = Unit::index_key};
  }

  Caches of_attention(std::int64_t window, int layer, bool full) const {
    const AttentionShape& shape = model_.attention;
    if (keys_.is_there("o_lora_rank")) return {keys_of(window)};
    if (!shape.latent) return {{.numbers = 2 * head_dim(full), .heads = kv_heads(full), .window = window}};
    Caches caches = {{.numbers = shape.latent->kv_rank + shape.latent->rope_dim, .window = window}};
    if (keys_.is_there("index_head_dim") && chooses(layer)) caches.push_back(index_key());
    return caches;
  }

  // Whether the layer has its own indexer; a list may say that it shares the choice of the layer before.
  bool chooses(int layer) const {
    if (!keys_.is_list("indexer_types")) return true;
    const std::vector<std::string> types = keys_.words("indexer_types");
    return layer >= std::ssize(types) || types[static_cast<std::size_t>(layer)] == "full";
  }

  // Layers with full attention may have wider and fewer heads.
  std::int64_t head_dim(bool full) const {
    const std::int64_t usual = model_.attention.head_dim;
    return full && rule_.wide_layers ? number("global_head_dim", 512) : usual;
  }
  std::int64_t kv_heads(bool full) const {
    const bool fewer = full && rule_.wide_layers && keys_.is_there("num_global_key_value_heads") &&
                       keys_.flag("attention_k_eq_v", false);
    return fewer ? number("num_global_key_value_heads") : model_.attention.kv_heads;
  }

  // The recurrent state, and the last inputs that the convolution needs.
  Caches of_linear() {
    if (keys_.is_there("linear_num_value_heads")) {
      const std::int64_t heads = number("linear_num_value_heads");
      const std::int64_t keys = number("linear_num_key_heads") * number("linear_key_head_dim");
      const std::int64_t value_dim = number("linear_value_head_dim");
      return of_state(heads * value_dim * number("linear_key_head_dim"), 2 * keys + heads * value_dim,
                      number("linear_conv_kernel_dim", 4));
    }
    for (const auto& [heads, head_dim, groups, state, kernel] :
         {std::array{"mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"},
          std::array{"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"}}) {
      if (!keys_.is_there(heads)) continue;
      // If the value is a word ("auto"), another key gives the width.
      const bool stated = keys_.is_there(head_dim) && keys_.at(head_dim)->is_number();
      const std::int64_t width =
          stated ? number(heads) * number(head_dim) : number("mamba_expand", 2) * model_.hidden;
      return of_state(width * number(state), width + 2 * number(groups, 1) * number(state),
                      number(kernel, 4));
    }
    note("the state of layers without attention is not counted: no key gives its size");
    return {};
  }

  static Caches of_state(std::int64_t recurrent, std::int64_t convolved, std::int64_t kernel) {
    return {{.numbers = 1, .heads = recurrent, .tokens = 0, .unit = Unit::state},
            {.numbers = std::max<std::int64_t>(kernel - 1, 0), .heads = convolved, .tokens = 0}};
  }

  const ConfigKeys& keys_;
  const AttentionRule& rule_;
  ModelDescription& model_;
  std::int64_t window_ = 0;
};

}  // namespace

std::vector<std::vector<CacheShape>> layer_caches(const ConfigKeys& keys, const AttentionRule& rule,
                                                  ModelDescription& model) {
  return LayerCaches(keys, rule, model).make();
}

}  // namespace evenkeel::internal
