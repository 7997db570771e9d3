// The tensors that a training framework keeps in each layer for backward. They are those of Megatron-Core
// with fused attention, norms, permutation and activation, and with router weights applied between the
// experts' products. Each tensor is named after the operation that reads it.
#include <algorithm>

#include "evenkeel/training_memory/internal/active_rows.h"

namespace evenkeel::internal {

namespace {

constexpr std::int64_t score_bytes = 4;  // bytes of a router score, f32

class KeptTensors {
 public:
  KeptTensors(const MemoryModel& memory, int stage, OneLayer one)
      : memory_(memory),
        model_(memory.model()),
        setup_(memory.setup()),
        stage_(stage),
        one_(memory.has_experts(stage) ? one : OneLayer::dense),
        gradients_{.name = "layer_gradients",
                   .source = "layer-gradients",
                   .bytes_per_number = memory.setup().bytes.activation} {}

  std::vector<ActiveRow> make() {
    using Part = MemoryModel::Part;
    if (has(Part::mixer)) add_attention();
    if (has(Part::network)) add("ffn_norm", {.of_token = model_.hidden});
    if (has(Part::experts)) add_experts();
    if (has(Part::dense)) add_dense();
    if (setup_.extra.layer_gradients) rows_.push_back(gradients_);
    return std::move(rows_);
  }

 private:
  struct Tensor {
    std::int64_t of_token = 0;
    std::int64_t of_received = 0;
    bool again = false;      // true: backward recomputes it, one layer at a time
    std::int64_t bytes = 0;  // bytes per number; 0: that of the activations
  };

  // Selects the layers with this part. Returns false if there are none, or if the part's tensors are kept
  // only in the single layer and that layer is of the other kind.
  bool has(MemoryModel::Part part) {
    layers_ = memory_.piece_layers(stage_, part);
    in_one_layer_ = (part != MemoryModel::Part::experts || one_ == OneLayer::with_experts) &&
                    (part != MemoryModel::Part::dense || one_ == OneLayer::dense);
    return layers_ > 0 && (in_one_layer_ || keeps_every_layer(setup_));
  }

  void add(std::string_view name, const Tensor& tensor) {
    const std::int64_t copies = keeps_every_layer(setup_) ? memory_.micro_batches_in_flight(stage_) * layers_
                                                          : memory_.stored_copies(stage_);
    rows_.push_back({.name = name,
                     .source = "kept-tensors",
                     .of_token = tensor.of_token,
                     .of_received = tensor.of_received,
                     .of_all_chunks = keeps_every_layer(setup_) && !tensor.again,
                     .bytes_per_number = tensor.bytes > 0 ? tensor.bytes : setup_.bytes.activation,
                     .copies = tensor.again ? 1 : copies});
    if (!in_one_layer_) return;
    gradients_.of_token += tensor.of_token;
    gradients_.of_received += tensor.of_received;
  }

  void add_attention() {
    const AttentionShape& shape = model_.attention;
    if (setup_.unfused_attention)
      add("attention_scores",
          {.of_token = 2 * shape.heads * setup_.sequence, .again = setup_.selective.core_attn});
    const bool again = setup_.selective.layernorm;
    add("attention_norm", {.of_token = model_.hidden});
    add("qkv_input", {.of_token = model_.hidden, .again = again});
    if (shape.latent) return add_latent(*shape.latent);
    const std::int64_t queries = shape.heads * shape.head_dim;
    // Each tensor-parallel device has at least one key head, even if heads must be repeated.
    const std::int64_t keys = std::max(shape.kv_heads, setup_.parallel.tensor) * shape.head_dim;
    if (shape.query_key_norm != AttentionShape::QueryKeyNorm::none)
      add("query_key_norm", {.of_token = queries + keys});
    add("queries", {.of_token = queries});
    add("keys", {.of_token = keys});
    add("values", {.of_token = keys});
    add("output_input", {.of_token = queries});
  }

  // Compressed queries, keys and values, each before and after its norm; then those of every head.
  void add_latent(const LatentAttention& latent) {
    const std::int64_t heads = model_.attention.heads;
    const bool again = setup_.selective.mla_up_proj;
    add("latents", {.of_token = 2 * (latent.query_rank + latent.kv_rank) + latent.rope_dim});
    add("queries", {.of_token = heads * latent.query_dim(), .again = again});
    add("keys", {.of_token = heads * latent.query_dim(), .again = again});
    add("values", {.of_token = heads * latent.value_dim, .again = again});
    add("output_input", {.of_token = heads * latent.value_dim});
  }

  void add_experts() {
    const RoutedExperts& experts = model_.experts;
    const SelectiveRecompute& selective = setup_.selective;
    const std::int64_t width = model_.expert_row_width();
    const std::int64_t inner = experts.intermediate / setup_.parallel.expert_tensor;
    add("router_input", {.of_token = model_.hidden, .again = selective.layernorm});
    // The router's scores, and their probabilities.
    add("router_scores", {.of_token = 2 * experts.count, .again = selective.moe, .bytes = score_bytes});
    add("expert_input", {.of_received = width, .again = selective.moe});
    add("expert_hidden", {.of_received = gate_and_up_width(model_, inner), .again = selective.moe});
    add("expert_activation", {.of_received = inner, .again = selective.moe || selective.moe_act});
    if (setup_.extra.expert_outputs) add("expert_output", {.of_received = width, .again = selective.moe});
    if (setup_.extra.shared_experts && experts.shared_width > 0)
      add("shared_experts",
          {.of_token = gate_and_up_width(model_, experts.shared_width) + experts.shared_width,
           .again = selective.moe || selective.shared_experts});
  }

  void add_dense() {
    const std::int64_t inner = model_.dense_intermediate;
    add("dense_input", {.of_token = model_.hidden, .again = setup_.selective.layernorm});
    add("dense_hidden",
        {.of_token = gate_and_up_width(model_, inner) + inner, .again = setup_.selective.mlp});
  }

  const MemoryModel& memory_;
  const ModelDescription& model_;
  const MemorySetup& setup_;
  int stage_;
  OneLayer one_;
  std::int64_t layers_ = 0;    // number of layers with the tensors being added, in one piece of the pipeline
  bool in_one_layer_ = false;  // true if the layer that holds gradients has these tensors
  ActiveRow gradients_;        // gradients of all tensors of that layer, in the activations' type
  std::vector<ActiveRow> rows_;
};

}  // namespace

std::vector<ActiveRow> kept_tensors(const MemoryModel& memory, int stage, OneLayer one) {
  return KeptTensors(memory, stage, one).make();
}

}  // namespace evenkeel::internal
