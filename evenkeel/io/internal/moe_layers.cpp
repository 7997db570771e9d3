#include "evenkeel/io/internal/moe_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/array_trace.h"
#include "evenkeel/io/internal/bare_array.h"
#include "evenkeel/io/internal/fractional_loads.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

void require_shape(const IntArray& counts, const std::string& file, const std::string& key) {
  const std::size_t dimensions = counts.shape.size();
  if (dimensions != 2 && dimensions != 3)
    throw parse_error(file, key, "shape {} is neither [layers, experts] nor [steps, layers, experts]",
                      to_text(counts.shape));
  const std::int64_t layers = counts.shape[dimensions - 2];
  const std::int64_t experts = counts.shape[dimensions - 1];
  if (layers < 1 || experts < 1 || layers > max_layers || experts > max_trace_experts)
    throw parse_error(file, key, "shape {} is not of 1..{} layers of 1..{} experts", to_text(counts.shape),
                      max_layers, max_trace_experts);
}

bool without_load(std::span<const std::int64_t> loads) {
  return std::all_of(loads.begin(), loads.end(), [](std::int64_t load) { return load == 0; });
}

// Adds up all steps, and returns them as they were. The total was checked, so no sum overflows.
std::vector<std::int64_t> add_steps(IntArray& counts) {
  if (counts.shape.size() == 2) return {};
  std::vector<std::int64_t> sum(static_cast<std::size_t>(counts.shape[1] * counts.shape[2]), 0);
  for (std::size_t i = 0; i < counts.values.size(); ++i) sum[i % sum.size()] += counts.values[i];
  counts.values.swap(sum);
  counts.shape.erase(counts.shape.begin());
  return sum;
}

}  // namespace

RoutingFile routing_of_counts(IntArray counts, const std::string& file, const std::string& key,
                              CountRows rows) {
  require_shape(counts, file, key);
  if (rows == CountRows::unsaid) require_layer_order(counts.shape, file, key);
  require_loads(counts.values, file, key);
  std::vector<std::int64_t> steps = add_steps(counts);
  const std::size_t experts = static_cast<std::size_t>(counts.shape[1]);
  std::vector<std::int64_t> loads;
  std::vector<int> with_load;
  std::vector<int> dense;
  const auto row_of = [&](int layer) {
    return std::span(counts.values).subspan(static_cast<std::size_t>(layer) * experts, experts);
  };
  const bool any_row_may_be = rows == CountRows::hidden_layers || rows == CountRows::hidden_if_dense;
  const bool has_dense = any_row_may_be || (rows == CountRows::unsaid && without_load(row_of(0)));
  for (int layer = 0; layer < counts.shape[0]; ++layer) {
    const auto row = row_of(layer);
    const bool is_dense = has_dense && without_load(row);
    (is_dense ? dense : with_load).push_back(layer);
    if (!is_dense) loads.insert(loads.end(), row.begin(), row.end());
  }
  if (without_load(loads)) throw ParseError(file, key, "has no assignment in any layer");
  RoutingFile made{.what = "counts", .format = {}, .trace = nullptr, .profile = {}};
  made.step_counts = std::move(steps);
  made.rows_of_step = static_cast<int>(counts.shape[0]);
  made.kept_rows = with_load;
  made.profile =
      RoutingProfile(static_cast<int>(with_load.size()), static_cast<int>(experts), std::move(loads), {});
  if (rows != CountRows::hidden_layers && !dense.empty())
    made.all_rows = RoutingProfile(static_cast<int>(counts.shape[0]), static_cast<int>(experts),
                                   std::move(counts.values), {});
  if (rows == CountRows::unsaid && !has_dense)
    for (int layer : with_load)
      if (without_load(made.profile->loads(LayerId(layer)))) made.rows_without_load.push_back(layer);
  if (rows == CountRows::unsaid && !dense.empty())
    made.notes.push_back(
        fmt::format("layers {} have no assignment and are left out as dense ones; the others are the "
                    "model's layers {}",
                    to_text(LayerNumbers(dense)), to_text(LayerNumbers(with_load))));
  if (rows == CountRows::hidden_layers || !dense.empty())
    made.profile->set_layers(LayerNumbers(std::move(with_load)));
  return made;
}

void forget_dense_layers(std::vector<std::string>& notes) {
  std::erase_if(notes, [](const std::string& note) { return note.find("dense") != std::string::npos; });
}

RoutingFile routing_of_counts(const DoubleArray& counts, const std::string& file, const std::string& key,
                              CountRows rows) {
  ScaledLoads scaled = scaled_loads(counts.values, file, key);
  RoutingFile made = routing_of_counts(IntArray{counts.shape, std::move(scaled.loads)}, file, key, rows);
  scaled.note_in(made.notes);
  return made;
}

std::optional<RoutingFile> routing_of_bare_ids(IntArray& numbers, const std::string& file,
                                               const std::string& name, const RoutingOptions& options,
                                               std::optional<int> num_experts,
                                               std::optional<BareArray> where_open) {
  const std::vector<std::int64_t> shape = numbers.shape;
  const auto held = std::make_shared<std::vector<std::int64_t>>(std::move(numbers.values));
  auto array = std::make_unique<ArrayReader>(
      file, ArrayInfo{.name = name, .dtype = Dtype::i64, .shape = shape, .num_elements = std::ssize(*held)},
      [held](std::int64_t first_byte, std::span<std::byte> out) {
        const auto bytes = std::as_bytes(std::span(*held));
        std::ranges::copy(bytes.subspan(static_cast<std::size_t>(first_byte), out.size()), out.begin());
      });
  if (bare_array_kind(*array, options, file, where_open) == BareArray::counts) {
    numbers.values = std::move(*held);
    return std::nullopt;
  }
  require_layer_order(shape, file, name);
  TraceInfo info;
  info.name = file;
  take_ids_shape(shape, file, name, info);
  RoutingFile made{.what = "trace", .format = {}, .trace = nullptr, .profile = {}};
  made.trace = open_array_trace(std::move(info), std::move(array), nullptr, IdsAre::recorded, num_experts);
  return made;
}

RoutingFile routing_of_tokens(TokenIds tokens, int num_experts, const std::string& file) {
  const std::size_t layers = tokens.layers.size();
  const std::size_t width = static_cast<std::size_t>(tokens.top_k);
  std::vector<bool> used_layer(layers, false);
  std::size_t used_width = 0;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.ids[i] == no_expert) continue;
    used_layer[i / width % layers] = true;
    used_width = std::max(used_width, i % width + 1);
  }
  if (used_width == 0) throw ParseError(file, "", "has no assignment of any token");
  std::vector<std::int32_t> kept;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i)
    if (used_layer[i / width % layers] && i % width < used_width) kept.push_back(tokens.ids[i]);
  RoutingFile made{.what = "trace", .format = {}, .trace = nullptr, .profile = {}};
  std::vector<int> numbers;
  for (std::size_t l = 0; l < layers; ++l)
    if (used_layer[l]) numbers.push_back(tokens.layers[l]);
  const MemoryTrace::Shape shape{.num_layers = static_cast<int>(numbers.size()),
                                 .top_k = static_cast<int>(used_width),
                                 .num_experts = num_experts};
  made.trace = std::make_unique<MemoryTrace>(shape, std::move(kept), std::vector<float>{},
                                             std::vector<std::int64_t>{}, file);
  made.trace->set_layers(LayerNumbers(std::move(numbers)));
  made.step_tokens = std::move(tokens.steps);
  return made;
}

}  // namespace evenkeel::internal
