#include "evenkeel/memory/internal/active_rows.h"

#include <algorithm>

#include "evenkeel/memory/internal/bytes_math.h"
#include "evenkeel/model/parameters.h"

namespace evenkeel {

namespace internal {

namespace {

// A gradient of a borrowed weight is summed in f32 before it goes home.
constexpr std::int64_t f32_bytes = 4;

// Makes the rows of one stage.
class Rows {
 public:
  Rows(const MemoryModel& memory, int stage)
      : memory_(memory), model_(memory.model()), setup_(memory.setup()), stage_(stage) {}

  std::vector<ActiveRow> make() {
    add_attention();
    if (memory_.has_experts(stage_))
      add_experts();
    else
      add_dense();
    if (setup_.extra.every_layer) keep_every_layer();
    if (memory_.has_experts(stage_)) add_exchange();
    if (setup_.extra.logits && stage_ + 1 == memory_.num_stages()) add_logits();
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
    const std::int64_t width = expert_row_width(model_);
    add("expert_input", "row 11", 0, width);
    add("expert_hidden", "row 12", 0, kept_of_network(experts.intermediate / setup_.parallel.expert_tensor));
    add("expert_output", "row 13", 0, width);
    if (setup_.extra.shared_experts && experts.shared_width > 0)
      add("shared_experts", "shared-experts", kept_of_network(experts.shared_width));
  }

  // Not in the paper: a stage whose layers are all dense. Rows 9 and 12 with the dense width.
  void add_dense() {
    add("dense_input", "dense stage", model_.hidden);
    add("dense_hidden", "dense stage", kept_of_network(model_.dense_intermediate));
  }

  // What gate and up make, or up alone.
  std::int64_t kept_of_network(std::int64_t width) const { return (model_.experts.gated ? 2 : 1) * width; }

  void keep_every_layer() {
    const std::int64_t pieces = setup_.parallel.virtual_stages;
    const std::int64_t layers = (std::ssize(memory_.layers(stage_)) + pieces - 1) / pieces;
    const std::int64_t in_flight = memory_.micro_batches_in_flight(stage_);
    if (!setup_.full_recompute) {
      for (ActiveRow& row : rows_) row.copies = in_flight * layers;
      return;
    }
    add("layer_inputs", "every-layer", model_.hidden);
    rows_.back().copies = in_flight * layers;
  }

  void add_exchange() {
    if (setup_.extra.communication_buffers)
      for (const std::string_view name : {"dispatch_buffer", "combine_buffer"})
        rows_.push_back({.name = name,
                         .source = "buffers",
                         .of_chunk_token = model_.experts.top_k * expert_row_width(model_),
                         .bytes_per_number = setup_.bytes.activation});
    if (setup_.extra.borrowed_experts > 0)
      rows_.push_back({.name = "borrowed_experts",
                       .source = "borrowed",
                       .copies = setup_.extra.borrowed_experts,
                       .constant_bytes =
                           narrow(divide_up(Wide{expert_parameters(model_)}, setup_.parallel.expert_tensor) *
                                  (setup_.bytes.weight + f32_bytes))});
  }

  void add_logits() {
    rows_.push_back({.name = "logits",
                     .source = "logits",
                     .of_token = model_.vocabulary,
                     .bytes_per_number = setup_.bytes.activation + f32_bytes});
  }

  const MemoryModel& memory_;
  const ModelDescription& model_;
  const MemorySetup& setup_;
  int stage_;
  std::vector<ActiveRow> rows_;
};

}  // namespace

std::vector<ActiveRow> active_rows(const MemoryModel& model, int stage) {
  return Rows(model, stage).make();
}

}  // namespace internal

using internal::ActiveRow;
using internal::Wide;

namespace {

Wide bytes_of(const ActiveRow& row, const MemorySetup& setup, std::int64_t received, std::int64_t chunks) {
  const Wide numbers = Wide{setup.sequence} * row.of_token +
                       internal::divide_up(setup.sequence, chunks) * row.of_chunk_token +
                       internal::divide_up(received, chunks) * row.of_received;
  const Wide bytes = numbers * setup.micro_batch * row.bytes_per_number;
  const std::int64_t shares = setup.parallel.tensor * setup.parallel.context;
  const std::int64_t granule = setup.extra.allocation_granule;
  // Eq. 2 multiplies by m_g before it divides; whole tensors are rounded one by one.
  if (granule == 0)
    return internal::divide_up(bytes * row.copies, shares) + Wide{row.constant_bytes} * row.copies;
  return row.copies * (internal::round_up(internal::divide_up(bytes, shares), granule) +
                       internal::round_up(row.constant_bytes, granule));
}

}  // namespace

std::vector<ActiveItem> MemoryModel::active_items(int stage, std::int64_t received,
                                                  std::int64_t chunks) const {
  std::vector<ActiveItem> items;
  for (const ActiveRow& row : internal::active_rows(*this, stage))
    items.push_back({.name = row.name,
                     .source = row.source,
                     .bytes = internal::narrow(bytes_of(row, setup_, received, chunks))});
  return items;
}

std::int64_t MemoryModel::most_received(int stage, std::int64_t available_bytes,
                                        std::int64_t static_bytes) const {
  Wide fixed = 0;
  Wide of_received = 0;  // times t c
  for (const ActiveRow& row : internal::active_rows(*this, stage)) {
    fixed += bytes_of(row, setup_, 0, 1);
    if (row.of_received == 0) continue;
    of_received += Wide{row.of_received} * row.copies * setup_.micro_batch * row.bytes_per_number;
    // What rounding may add, whatever the rows.
    fixed += Wide{row.copies} * setup_.extra.allocation_granule;
  }
  const Wide left = Wide{available_bytes} - static_bytes - fixed;
  if (left < 0) return 0;
  if (of_received == 0) return most_rows;
  return internal::narrow(left * setup_.parallel.tensor * setup_.parallel.context / of_received);
}

}  // namespace evenkeel
