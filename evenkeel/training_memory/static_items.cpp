// Static memory by MemFine's Eq. 1, split by what the weights are for.
#include <algorithm>
#include <array>

#include "evenkeel/training_memory/internal/bytes_math.h"
#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel {

namespace {

using internal::Wide;

// The shape of a weight on one device, before data parallelism cuts it. Eq. 1 divides all weights except
// experts by t. With the term `replicated`, tensors that all heads or experts share are not divided.
std::vector<std::int64_t> model_parallel_shape(const Weight& weight, const MemorySetup& setup) {
  const Parallelism& parallel = setup.parallel;
  if (weight.kind == WeightKind::experts || setup.extra.replicated)
    return shape_on_device(weight, {parallel.tensor, parallel.expert, parallel.expert_tensor});
  return {internal::narrow(internal::divide_up(Wide{weight.numbers()}, parallel.tensor))};
}

// The number of devices in a stage that hold the same elements of this weight.
std::int64_t num_replicas(const Weight& weight, const Parallelism& parallel) {
  return weight.kind == WeightKind::experts ? parallel.stage_devices() / parallel.expert_parts()
                                            : parallel.data * parallel.context;
}

struct Sum {
  Wide kept = 0;
  Wide stored_bytes = 0;
  Wide trained = 0;
  Wide states = 0;

  // FSDP cuts the first axis, so a device holds whole rows. If there are fewer experts than devices, it cuts
  // the next axis. If only optimizer states are sharded, they are cut as one flat array.
  void add(const Weight& weight, const MemorySetup& setup) {
    std::vector<std::int64_t> shape = model_parallel_shape(weight, setup);
    const std::int64_t replicas = num_replicas(weight, setup.parallel);
    if (setup.extra.fully_sharded) {
      const bool next = weight.kind == WeightKind::experts && shape[0] < replicas && shape.size() > 1 &&
                        !setup.extra.first_axis_alone;
      std::int64_t& length = shape[next ? 1 : 0];
      length = (length + replicas - 1) / replicas;
    }
    const Wide numbers = product(shape);
    kept += numbers;
    stored_bytes += numbers * (weight.number_bytes > 0 ? weight.number_bytes : setup.bytes.weight);
    if (!weight.trained) return;
    trained += numbers;
    states += setup.extra.sharded_optimizer && !setup.extra.fully_sharded
                  ? internal::divide_up(numbers, replicas)
                  : numbers;
  }
};

}  // namespace

bool MemoryModel::holds(int stage, const Weight& weight) const {
  if (weight.layer != no_layer) return stage_of_[static_cast<std::size_t>(weight.layer)] == stage;
  switch (weight.kind) {
    case WeightKind::embedding:
      return has_embedding(stage) || prediction_layers(stage) > 0;
    case WeightKind::other:
      return has_embedding(stage);
    default:
      return has_head(stage);
  }
}

std::int64_t MemoryModel::largest_layer(int stage) const {
  std::vector<Wide> sums(stage_of_.size(), 0);
  for (const Weight& weight : model_.weights)
    if (weight.layer != no_layer && holds(stage, weight))
      sums[static_cast<std::size_t>(weight.layer)] += product(model_parallel_shape(weight, setup_));
  return internal::narrow(*std::ranges::max_element(sums));
}

std::vector<StaticItem> MemoryModel::static_items(int stage) const {
  std::array<Sum, weight_kinds.size()> sums;
  // A tied head shares the embedding's weights only if both are on one device.
  const bool own_head = model_.tied_embeddings && has_head(stage) && !has_embedding(stage);
  for (const Weight& weight : model_.weights) {
    if (holds(stage, weight)) sums[static_cast<std::size_t>(weight.kind)].add(weight, setup_);
    if (own_head && weight.kind == WeightKind::embedding && weight.layer == no_layer)
      sums[static_cast<std::size_t>(WeightKind::head)].add(weight, setup_);
  }
  std::vector<StaticItem> items;
  const auto bytes = [&](Wide numbers, std::int64_t each) {
    return internal::narrow(internal::round_up(numbers * each, setup_.extra.allocation_granule));
  };
  for (std::size_t kind = 0; kind < sums.size(); ++kind)
    if (const Sum& sum = sums[kind]; sum.kept > 0)
      items.push_back({.name = weight_kinds[kind],
                       .weights = internal::narrow(sum.kept),
                       .stored_bytes = internal::narrow(sum.stored_bytes),
                       .weight_bytes = setup_.weights_as_stored ? internal::narrow(sum.stored_bytes)
                                                                : bytes(sum.kept, setup_.bytes.weight),
                       .gradient_bytes = bytes(sum.trained, setup_.bytes.gradient),
                       .optimizer_bytes = bytes(sum.states, setup_.bytes.optimizer)});
  return items;
}

}  // namespace evenkeel
