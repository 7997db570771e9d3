#include "evenkeel/training_memory/internal/active_rows.h"

#include <algorithm>

#include "evenkeel/training_memory/internal/bytes_math.h"

namespace evenkeel {

namespace internal {

namespace {

// Gradients of borrowed weights are summed in f32 before they are sent to their owners. Scores are converted
// to f32 for the loss.
constexpr std::int64_t f32_bytes = 4;

// The rows that a stage has in addition to those that its layers keep.
class StageRows {
 public:
  StageRows(const MemoryModel& memory, int stage, OneLayer one)
      : memory_(memory), model_(memory.model()), setup_(memory.setup()), stage_(stage), one_(one) {}

  std::vector<ActiveRow> make() {
    rows_ = setup_.extra.kept_tensors ? kept_tensors(memory_, stage_, one_) : paper_rows(memory_, stage_);
    if (setup_.extra.every_layer && setup_.full_recompute) add_layer_inputs();
    if (memory_.has_experts(stage_)) add_exchange();
    if (setup_.extra.fully_sharded) add_gathered_layers();
    if (setup_.extra.logits && memory_.has_head(stage_)) add_logits();
    return std::move(rows_);
  }

 private:
  void add_layer_inputs() {
    rows_.push_back({.name = "layer_inputs",
                     .source = "every-layer",
                     .of_token = model_.hidden,
                     .bytes_per_number = setup_.bytes.activation,
                     .copies = memory_.micro_batches_in_flight(stage_) * memory_.piece_layers(stage_)});
  }

  void add_exchange() {
    if (setup_.extra.communication_buffers)
      for (const std::string_view name : {"dispatch_buffer", "combine_buffer"})
        rows_.push_back({.name = name,
                         .source = "buffers",
                         .of_chunk_token = model_.experts.top_k * model_.expert_row_width(),
                         .bytes_per_number = setup_.bytes.activation});
    if (setup_.extra.borrowed_experts > 0)
      rows_.push_back({.name = "borrowed_experts",
                       .source = "borrowed",
                       .copies = setup_.extra.borrowed_experts,
                       .constant_bytes =
                           narrow(divide_up(Wide{model_.expert_parameters()}, setup_.parallel.expert_tensor) *
                                  (setup_.bytes.weight + f32_bytes))});
  }

  // Weights: those of one layer, and those gathered for the next computation (another layer, the embedding or
  // the head). Gradients: those of one of the two, and the copy of them that is reduced and scattered.
  void add_gathered_layers() {
    const Wide layer = memory_.largest_layer(stage_);
    const Wide table = divide_up(Wide{model_.vocabulary} * model_.hidden, setup_.parallel.tensor);
    const bool has_table = memory_.has_embedding(stage_) || memory_.has_head(stage_);
    const Wide next = has_table ? std::max(layer, table) : layer;
    const std::int64_t of_activation = setup_.bytes.activation;
    rows_.push_back({.name = "gathered_weights",
                     .source = "fsdp",
                     .constant_bytes = narrow((layer + next) * of_activation)});
    if (setup_.bytes.gradient > 0)
      rows_.push_back({.name = "gathered_gradients",
                       .source = "fsdp",
                       .constant_bytes = narrow(next * (of_activation + setup_.bytes.gradient))});
  }

  void add_logits() {
    rows_.push_back(
        {.name = "logits",
         .source = "logits",
         .of_token = model_.vocabulary,
         .bytes_per_number = setup_.bytes.activation + (setup_.extra.fused_cross_entropy ? 0 : f32_bytes),
         .copies = 1 + memory_.prediction_layers(stage_)});
  }

  const MemoryModel& memory_;
  const ModelDescription& model_;
  const MemorySetup& setup_;
  int stage_;
  OneLayer one_;
  std::vector<ActiveRow> rows_;
};

}  // namespace

std::int64_t gate_and_up_width(const ModelDescription& model, std::int64_t width) {
  return (model.experts.gated ? 2 : 1) * width;
}

bool keeps_every_layer(const MemorySetup& setup) {
  return setup.extra.every_layer && !setup.full_recompute;
}

std::vector<ActiveRow> active_rows(const MemoryModel& memory, int stage, OneLayer one) {
  return StageRows(memory, stage, one).make();
}

}  // namespace internal

using internal::ActiveRow;
using internal::OneLayer;
using internal::Wide;

namespace {

Wide bytes_of(const ActiveRow& row, const MemorySetup& setup, std::int64_t received, std::int64_t chunks) {
  const Wide numbers = Wide{setup.sequence} * row.of_token +
                       internal::divide_up(setup.sequence, chunks) * row.of_chunk_token +
                       internal::divide_up(received, row.of_all_chunks ? 1 : chunks) * row.of_received;
  const Wide bytes = numbers * setup.micro_batch * row.bytes_per_number;
  const std::int64_t shares = setup.parallel.tensor * setup.parallel.context;
  const std::int64_t granule = setup.extra.allocation_granule;
  // Without a granule, multiplies by m_g before it divides, as in Eq. 2. With a granule, each tensor is
  // rounded up separately.
  if (granule == 0)
    return internal::divide_up(bytes * row.copies, shares) + Wide{row.constant_bytes} * row.copies;
  return row.copies * (internal::round_up(internal::divide_up(bytes, shares), granule) +
                       internal::round_up(row.constant_bytes, granule));
}

// The kinds of layer on a stage. There are two only with kept_tensors and both MoE and dense layers. A single
// layer then counts as the larger kind.
std::vector<OneLayer> kinds_of_layer(const MemoryModel& memory, int stage) {
  const bool both = memory.setup().extra.kept_tensors && memory.has_experts(stage) &&
                    memory.piece_layers(stage, MemoryModel::Part::dense) > 0;
  if (both) return {OneLayer::with_experts, OneLayer::dense};
  return {OneLayer::with_experts};
}

std::int64_t rows_that_fit(const std::vector<ActiveRow>& rows, const MemorySetup& setup, Wide bytes,
                           std::int64_t received) {
  Wide fixed = 0;
  Wide of_received = 0;  // multiplied by t c
  for (const ActiveRow& row : rows) {
    fixed += bytes_of(row, setup, row.of_all_chunks ? received : 0, 1);
    if (row.of_received == 0 || row.of_all_chunks) continue;
    of_received += Wide{row.of_received} * row.copies * setup.micro_batch * row.bytes_per_number;
    // The most bytes that rounding up can add, for any number of rows.
    fixed += Wide{row.copies} * setup.extra.allocation_granule;
  }
  const Wide left = bytes - fixed;
  if (left < 0) return 0;
  if (of_received == 0) return most_rows;
  return internal::narrow(left * setup.parallel.tensor * setup.parallel.context / of_received);
}

}  // namespace

std::vector<ActiveItem> MemoryModel::active_items(int stage, std::int64_t received,
                                                  std::int64_t chunks) const {
  std::vector<ActiveItem> largest;
  for (const OneLayer one : kinds_of_layer(*this, stage)) {
    std::vector<ActiveItem> items;
    for (const ActiveRow& row : internal::active_rows(*this, stage, one))
      items.push_back({.name = row.name,
                       .source = row.source,
                       .bytes = internal::narrow(bytes_of(row, setup_, received, chunks))});
    if (largest.empty() || total_bytes(items) > total_bytes(largest)) largest = std::move(items);
  }
  return largest;
}

std::int64_t MemoryModel::most_received(int stage, std::int64_t available_bytes, std::int64_t static_bytes,
                                        std::int64_t received) const {
  std::int64_t most = most_rows;
  for (const OneLayer one : kinds_of_layer(*this, stage)) {
    const std::vector<ActiveRow> rows = internal::active_rows(*this, stage, one);
    most = std::min(most, rows_that_fit(rows, setup_, Wide{available_bytes} - static_bytes, received));
  }
  return most;
}

}  // namespace evenkeel
