// Eq. 1, by what the weights are for.
#include <algorithm>

#include "evenkeel/model/parameters.h"
#include "evenkeel/training_memory/internal/bytes_math.h"
#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel {

namespace {

using internal::Wide;

// Adds up items of one stage.
class Items {
 public:
  explicit Items(const MemorySetup& setup) : setup_(setup) {}

  // Weights that are cut over tensor parallelism; `whole` of them are on each device, where that term is on.
  void add_dense(std::string_view name, std::int64_t weights, std::int64_t whole = 0) {
    const Parallelism& parallel = setup_.parallel;
    if (!setup_.extra.replicated) whole = 0;
    add(name, internal::divide_up(weights - whole, parallel.tensor) + whole,
        parallel.data * parallel.context);
  }

  void add_experts(std::int64_t weights) {
    const Parallelism& parallel = setup_.parallel;
    add("experts", internal::divide_up(weights, parallel.expert_tensor),
        parallel.stage_devices() / parallel.expert_parts());
  }

  std::vector<StaticItem> take() { return std::move(items_); }

 private:
  // `here` of the weights are on this device, and on so many devices in all.
  void add(std::string_view name, Wide here, std::int64_t sharers) {
    if (here == 0) return;
    const Wide share = internal::divide_up(here, sharers);
    const bool fully = setup_.extra.fully_sharded;
    const Wide kept = fully ? share : here;
    const Wide states = fully || setup_.extra.sharded_optimizer ? share : here;
    items_.push_back({.name = name,
                      .weights = internal::narrow(kept),
                      .weight_bytes = bytes(kept, setup_.bytes.weight),
                      .gradient_bytes = bytes(kept, setup_.bytes.gradient),
                      .optimizer_bytes = bytes(states, setup_.bytes.optimizer)});
  }

  std::int64_t bytes(Wide numbers, std::int64_t each) const {
    return internal::narrow(internal::round_up(numbers * each, setup_.extra.allocation_granule));
  }

  const MemorySetup& setup_;
  std::vector<StaticItem> items_;
};

}  // namespace

std::int64_t MemoryModel::largest_layer(int stage) const {
  const Parallelism& parallel = setup_.parallel;
  Wide most = 0;
  for (const std::int64_t layer : layers(stage)) {
    const LayerParameters parts = layer_parameters(model_, LayerId(layer));
    const bool moe = model_.has_experts[static_cast<std::size_t>(layer)];
    const Wide experts = moe ? Wide{local_experts()} * expert_parameters(model_) : 0;
    most = std::max(most, internal::divide_up(parts.total() - parts.experts, parallel.tensor) +
                              internal::divide_up(experts, parallel.expert_tensor));
  }
  return internal::narrow(most);
}

std::vector<StaticItem> MemoryModel::static_items(int stage) const {
  LayerParameters sum;
  std::int64_t moe_layers = 0;
  std::int64_t shared_attention = 0;
  std::int64_t keys_and_values = 0;
  for (const std::int64_t layer : layers(stage)) {
    sum += layer_parameters(model_, LayerId(layer));
    shared_attention += shared_attention_parameters(model_, LayerId(layer));
    keys_and_values += key_value_parameters(model_, LayerId(layer));
    moe_layers += model_.has_experts[static_cast<std::size_t>(layer)] ? 1 : 0;
  }
  const bool first = stage == 0;
  const bool last = stage + 1 == num_stages();
  const std::int64_t table = model_.vocabulary * model_.hidden;
  const std::int64_t predicts = prediction_layers(stage);
  const std::int64_t norms =
      sum.norms + (last ? final_norm_parameters(model_) : 0) + predicts * prediction_norm_parameters(model_);
  // A head that is the embedding is one with it only where both are on one device.
  const bool own_head = last && !(model_.tied_embeddings && first);

  Items items(setup_);
  items.add_dense("embedding", first || predicts > 0 ? table : 0);
  items.add_dense("norms", norms, norms);
  // Of more tensor-parallel devices than there are key heads, several have the same one.
  const std::int64_t heads = std::max<std::int64_t>(model_.attention.kv_heads, 1);
  const std::int64_t repeated = keys_and_values * (std::max(setup_.parallel.tensor, heads) - heads) / heads;
  items.add_dense("attention", sum.attention + (setup_.extra.kept_tensors ? repeated : 0), shared_attention);
  items.add_dense("router", sum.router, sum.router);
  items.add_experts(moe_layers * local_experts() * expert_parameters(model_));
  items.add_dense("shared_experts", sum.shared_experts);
  items.add_dense("dense", sum.dense);
  items.add_dense("prediction", predicts * prediction_projection_parameters(model_));
  items.add_dense("head", own_head ? head_parameters(model_) : 0);
  return items.take();
}

}  // namespace evenkeel
