// The rows of MemFine's Table 2 for one MoE layer, or for one dense layer in a stage without MoE layers.
#include "evenkeel/training_memory/internal/active_rows.h"

namespace evenkeel::internal {

namespace {

class PaperRows {
 public:
  PaperRows(const MemoryModel& memory, int stage)
      : memory_(memory), model_(memory.model()), setup_(memory.setup()), stage_(stage) {}

  std::vector<ActiveRow> make() {
    add_attention();
    if (memory_.has_experts(stage_))
      add_experts();
    else
      add_dense();
    if (keeps_every_layer(setup_)) keep_every_layer();
    return std::move(rows_);
  }

 private:
  void add(std::string_view name, std::string_view source, std::int64_t of_token,
           std::int64_t of_received = 0) {
    rows_.push_back({.name = name,
                     .source = source,
                     .of_token = of_token,
                     .of_received = of_received,
                     .bytes_per_number = setup_.bytes.activation,
                     .copies = memory_.stored_copies(stage_)});
  }

  void add_attention() {
    const AttentionShape& attention = model_.attention;
    add("attention_norm", "row 1", model_.hidden);
    add("qkv_input", "row 2", model_.hidden);
    add("queries", "row 3", attention.heads * attention.head_dim);
    add("keys", "row 4", attention.kv_heads * attention.head_dim);
    add("values", "row 5", attention.kv_heads * attention.head_dim);
    add("output_input", "row 6", model_.hidden);
    add("ffn_norm", "row 8", model_.hidden);
  }

  void add_experts() {
    const RoutedExperts& experts = model_.experts;
    add("router_input", "row 9", model_.hidden);
    add("router_scores", "row 10", experts.count);
    const std::int64_t width = model_.expert_row_width();
    add("expert_input", "row 11", 0, width);
    add("expert_hidden", "row 12", 0,
        gate_and_up_width(model_, experts.intermediate / setup_.parallel.expert_tensor));
    add("expert_output", "row 13", 0, width);
    if (setup_.extra.shared_experts && experts.shared_width > 0)
      add("shared_experts", "shared-experts", gate_and_up_width(model_, experts.shared_width));
  }

  // For a stage without MoE layers, which the paper does not cover: rows 9 and 12 with the dense width.
  void add_dense() {
    add("dense_input", "dense stage", model_.hidden);
    add("dense_hidden", "dense stage", gate_and_up_width(model_, model_.dense_intermediate));
  }

  void keep_every_layer() {
    for (ActiveRow& row : rows_)
      row.copies = memory_.micro_batches_in_flight(stage_) * memory_.piece_layers(stage_);
  }

  const MemoryModel& memory_;
  const ModelDescription& model_;
  const MemorySetup& setup_;
  int stage_;
  std::vector<ActiveRow> rows_;
};

}  // namespace

std::vector<ActiveRow> paper_rows(const MemoryModel& memory, int stage) {
  return PaperRows(memory, stage).make();
}

}  // namespace evenkeel::internal
