// Eq. 1, by what the weights are for.
#include <algorithm>

#include "evenkeel/memory/internal/bytes_math.h"
#include "evenkeel/memory/memory_model.h"
#include "evenkeel/model/parameters.h"

namespace evenkeel {

namespace {

using internal::Wide;

// Adds up items of one stage.
class Items {
 public:
  explicit Items(const MemorySetup& setup) : setup_(setup) {}

  // `whole` of the weights are on every tensor-parallel device, where that term is on.
  void add(std::string_view name, std::int64_t weights, std::int64_t whole, std::int64_t sharers) {
    if (weights == 0) return;
    if (!setup_.extra.replicated) whole = 0;
    const Wide here = internal::divide_up(weights - whole, setup_.parallel.tensor) + whole;
    const Wide states = setup_.extra.sharded_optimizer ? internal::divide_up(here, sharers) : here;
    items_.push_back({.name = name,
                      .weights = internal::narrow(here),
                      .weight_bytes = bytes(here, setup_.bytes.weight),
                      .gradient_bytes = bytes(here, setup_.bytes.gradient),
                      .optimizer_bytes = bytes(states, setup_.bytes.optimizer)});
  }

  std::vector<StaticItem> take() { return std::move(items_); }

 private:
  std::int64_t bytes(Wide numbers, std::int64_t each) const {
    return internal::narrow(internal::round_up(numbers * each, setup_.extra.allocation_granule));
  }

  const MemorySetup& setup_;
  std::vector<StaticItem> items_;
};

}  // namespace

std::vector<StaticItem> MemoryModel::static_items(int stage) const {
  LayerParameters sum;
  std::int64_t moe_layers = 0;
  std::int64_t shared_attention = 0;
  for (const std::int64_t layer : layers(stage)) {
    sum += layer_parameters(model_, LayerId(layer));
    shared_attention += shared_attention_parameters(model_, LayerId(layer));
    moe_layers += model_.has_experts[static_cast<std::size_t>(layer)] ? 1 : 0;
  }
  const Parallelism& parallel = setup_.parallel;
  const std::int64_t sharers = parallel.data * parallel.context;
  const bool first = stage == 0;
  const bool last = stage + 1 == num_stages();
  const std::int64_t table = model_.vocabulary * model_.hidden;
  const std::int64_t norms = sum.norms + (last ? final_norm_parameters(model_) : 0);
  // A head that is the embedding is one with it only where both are on one device.
  const bool own_head = last && !(model_.tied_embeddings && first);

  Items items(setup_);
  items.add("embedding", first ? table : 0, 0, sharers);
  items.add("norms", norms, norms, sharers);
  items.add("attention", sum.attention, shared_attention, sharers);
  items.add("router", sum.router, sum.router, sharers);
  items.add("experts", moe_layers * local_experts() * expert_parameters(model_), 0,
            std::max<std::int64_t>(sharers / parallel.expert, 1));
  items.add("shared_experts", sum.shared_experts, 0, sharers);
  items.add("dense", sum.dense, 0, sharers);
  items.add("head", own_head ? head_parameters(model_) : 0, 0, sharers);
  return items.take();
}

}  // namespace evenkeel
