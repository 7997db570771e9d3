#include "evenkeel/serving_memory/serving.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

__extension__ using Wide = __int128;
// multiple on which an expert's rows begin (DeepGEMM's contiguous layout)
constexpr std::int64_t row_alignment = 128;
constexpr std::int64_t most_tokens = std::int64_t{1} << 32;
constexpr std::int64_t most_copies = std::int64_t{1} << 20;
constexpr std::int64_t state_bytes = 4;  // bytes of a number in a recurrent state

std::int64_t narrow(Wide number) {
  return static_cast<std::int64_t>(std::min(number, Wide{most_bytes}));
}

Wide divide_up(Wide dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

MemorySetup layout_setup(const ServingSetup& setup) {
  const Parallelism& parallel = setup.parallel;
  if (parallel.context != 1 || parallel.virtual_stages != 1)
    throw InvalidArgument("parallel", fmt::format("cp={}, vp={}", parallel.context, parallel.virtual_stages),
                          "cp=1 and vp=1, since the model is served");
  MemorySetup layout{.parallel = parallel, .bytes = {.gradient = 0, .optimizer = 0}};
  layout.extra.replicated = true;
  layout.extra.kept_tensors = true;  // key heads are repeated if there are fewer of them than devices
  return layout;
}

void require_in(const char* what, std::int64_t number, std::int64_t least, std::int64_t most) {
  if (number < least || number > most)
    throw InvalidArgument(what, fmt::format("{}", number), fmt::format("{}..{}", least, most));
}

}  // namespace

ServingModel::ServingModel(ModelDescription model, ServingSetup setup)
    : setup_(setup), layout_(std::move(model), layout_setup(setup)) {
  require_in("sequences", setup_.sequences, 1, most_tokens);
  require_in("context", setup_.context, 1, most_tokens);
  require_in("tokens", setup_.tokens, 1, most_tokens);
  const RoutedExperts& experts = this->model().experts;
  require_in("redundant_experts", setup_.redundant_experts, 0,
             std::min(most_copies, experts.count * (setup_.parallel.expert - 1)));
  if (setup_.slots) require_in("slots", *setup_.slots, slots_for_any_routing(), experts.count);
}

std::int64_t ServingModel::local_experts() const {
  return narrow(divide_up(Wide{model().experts.count} + setup_.redundant_experts, setup_.parallel.expert));
}

std::int64_t ServingModel::own_bytes() const {
  return model().dtype_bytes > 0 ? model().dtype_bytes : 2;
}

std::int64_t ServingModel::matrix_bytes() const {
  return setup_.weight_bytes.value_or(model().quantization == "fp8" ? 1 : own_bytes());
}

std::optional<std::int64_t> ServingModel::stored_expert_bytes() const {
  std::int64_t layer = no_layer;
  Wide bytes = 0;
  for (const Weight& weight : model().weights) {
    if (weight.kind != WeightKind::experts || (layer != no_layer && weight.layer != layer)) continue;
    if (weight.number_bytes == 0) return std::nullopt;
    layer = weight.layer;
    bytes += Wide{weight.numbers() / weight.shape[0]} * weight.number_bytes;
  }
  return layer == no_layer ? std::nullopt : std::optional(narrow(bytes));
}

std::int64_t ServingModel::expert_bytes() const {
  const auto stored = stored_expert_bytes();
  if (stored && !setup_.weight_bytes && !setup_.expert_bytes)
    return narrow(divide_up(*stored, setup_.parallel.expert_tensor));
  const Wide weights = model().expert_parameters();
  const bool mxfp4 = model().quantization == "mxfp4" && !setup_.weight_bytes;
  const Wide bytes = mxfp4 ? divide_up(weights * 17, 32)  // 4 bits each, and 8 bits for every 32 weights
                           : weights * matrix_bytes();
  return narrow(
      divide_up(setup_.expert_bytes ? Wide{*setup_.expert_bytes} : bytes, setup_.parallel.expert_tensor));
}

std::vector<StaticItem> ServingModel::weights(int stage) const {
  std::vector<StaticItem> items = layout_.static_items(stage);
  const std::int64_t moe_layers = layout_.piece_layers(stage, MemoryModel::Part::experts);
  const bool stored =
      std::ranges::any_of(model().weights, [](const Weight& weight) { return weight.number_bytes > 0; });
  for (StaticItem& item : items) {
    const bool matrix = item.name == "attention" || item.name == "shared_experts" || item.name == "dense";
    item.weight_bytes = stored && !setup_.weight_bytes
                            ? item.stored_bytes
                            : narrow(Wide{item.weights} * (matrix ? matrix_bytes() : own_bytes()));
    if (item.name == "experts")
      item.weight_bytes = narrow(Wide{moe_layers} * local_experts() * expert_bytes());
  }
  return items;
}

std::int64_t ServingModel::cache_bytes(const CacheShape& cache) const {
  const std::int64_t heads = cache.heads == 0 ? 1 : narrow(divide_up(cache.heads, setup_.parallel.tensor));
  const Wide numbers = Wide{cache.numbers} * heads;
  switch (cache.unit) {
    case CacheShape::Unit::cached:
      return narrow(numbers * (cache.tokens == 0 ? own_bytes() : setup_.cache_bytes.value_or(own_bytes())));
    case CacheShape::Unit::index_key:  // fp8, with an f32 scale for every 128 numbers
      return narrow(numbers + 4 * divide_up(numbers, 128));
    case CacheShape::Unit::state:
      return narrow(numbers * state_bytes);
  }
  return 0;
}

std::int64_t ServingModel::sequence_bytes(int stage) const {
  Wide sum = 0;
  for (const std::int64_t layer : layout_.layers(stage))
    for (const CacheShape& cache : model().caches[static_cast<std::size_t>(layer)]) {
      const std::int64_t kept = cache.window > 0 ? std::min(cache.window, setup_.context) : setup_.context;
      sum += Wide{cache_bytes(cache)} * (cache.tokens == 0 ? Wide{1} : divide_up(kept, cache.tokens));
    }
  return narrow(sum);
}

std::int64_t ServingModel::assignments() const {
  const Parallelism& parallel = setup_.parallel;
  // If the devices hold several copies of all experts, the tokens are shared out over these copies.
  const std::int64_t copies = parallel.stage_devices() / parallel.expert_parts();
  return narrow(divide_up(Wide{parallel.data} * setup_.tokens, copies) * model().experts.top_k);
}

std::int64_t ServingModel::even_rows() const {
  return narrow(divide_up(assignments(), setup_.parallel.expert));
}

std::int64_t ServingModel::worst_rows() const {
  const RoutedExperts& experts = model().experts;
  const Wide tokens = Wide{assignments()} / experts.top_k;
  const std::int64_t here = std::min(experts.top_k, local_experts());
  // Most experts have `fewest` copies; the others have one more.
  const std::int64_t all = experts.count + setup_.redundant_experts;
  const std::int64_t fewest = all / experts.count;
  const Wide slots_of_fewest = Wide{experts.count - all % experts.count} * fewest;
  const Wide hot = std::min(Wide{here}, divide_up(slots_of_fewest, setup_.parallel.expert));
  return narrow(divide_up(tokens * hot, fewest) + divide_up(tokens * (here - hot), fewest + 1));
}

std::int64_t ServingModel::slots_for_any_routing() const {
  const std::int64_t hot = std::min(model().experts.top_k, local_experts());
  // In the worst case all hot experts are consecutive. If they are cut into equal parts, one part touches
  // this number of ranks.
  return narrow(divide_up(hot, setup_.parallel.expert)) + 1;
}

RoutingCase ServingModel::routing(std::string name, std::int64_t rows, std::int64_t chunks,
                                  std::int64_t borrowed) const {
  const std::int64_t row = model().expert_row_width();
  const std::int64_t width = model().experts.intermediate / setup_.parallel.expert_tensor;
  const std::int64_t product = (model().experts.gated ? 2 : 1) * width;
  const Wide padding = Wide{local_experts() + borrowed} * (row_alignment - 1);
  const Wide aligned = divide_up(divide_up(rows, chunks) + padding, row_alignment) * row_alignment;
  const Wide row_bytes = Wide{setup_.activation_bytes} * (std::max(width, row) + std::max(product, row));
  return {.name = std::move(name),
          .rows = rows,
          .chunks = chunks,
          .borrowed = borrowed,
          .workspace_bytes = narrow(aligned * row_bytes),
          .borrowed_bytes = narrow(Wide{borrowed} * expert_bytes())};
}

std::vector<std::string> ServingModel::notes() const {
  std::vector<std::string> notes = model().notes;
  notes.insert(notes.end(), model().cache_notes.begin(), model().cache_notes.end());
  const std::string& type = model().quantization;
  if (!stored_expert_bytes() && !type.empty() && type != "fp8" && type != "mxfp4" && !setup_.weight_bytes &&
      !setup_.expert_bytes)
    notes.push_back(
        fmt::format("the checkpoint is quantized ({}), and its weights are counted with {} bytes: "
                    "give their size by --bytes weight=N or --expert-bytes SIZE",
                    type, matrix_bytes()));
  if (!model().prediction_layers.empty()) notes.emplace_back("multi-token-prediction layers are not counted");
  const auto is_state = [](const CacheShape& cache) { return cache.unit == CacheShape::Unit::state; };
  if (std::ranges::any_of(model().caches,
                          [&](const auto& layer) { return std::ranges::any_of(layer, is_state); }))
    notes.emplace_back("states of linear attention and state spaces are counted in f32, once a sequence");
  return notes;
}

}  // namespace evenkeel
