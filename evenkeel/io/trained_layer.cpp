#include "evenkeel/io/trained_layer.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr std::int64_t max_length = std::int64_t{1} << 24;

// The shape of an array, which determines the shapes of other arrays.
std::vector<std::int64_t> lengths_of(const ArrayFile& file, const char* array, std::size_t dimensions) {
  const std::vector<std::int64_t>& shape = file.at(array).shape;
  const auto fits = [](std::int64_t length) { return length >= 1 && length <= max_length; };
  if (shape.size() != dimensions || !std::ranges::all_of(shape, fits))
    throw parse_error(file.name(), array, "shape {}; allowed: {} dimensions, each of 1..{}", to_text(shape),
                      dimensions, max_length);
  return shape;
}

// "[3, 0, 17]".
std::string element_at(std::int64_t index, std::vector<std::int64_t> shape) {
  for (std::int64_t& length : std::views::reverse(shape)) {
    const std::int64_t place = index % length;
    index /= length;
    length = place;
  }
  return to_text(shape);
}

std::vector<float> floats(const ArrayFile& file, const char* array, const std::vector<std::int64_t>& shape) {
  if (const auto& stated = file.at(array).shape; stated != shape)
    throw parse_error(file.name(), array, "shape {} does not fit the other arrays; it must be {}",
                      to_text(stated), to_text(shape));
  std::vector<float> values = read_floats(file, array).values;
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad != values.end())
    throw parse_error(file.name(), array, "element {} is {} as F32; every number must be finite",
                      element_at(bad - values.begin(), shape), *bad);
  return values;
}

}  // namespace

TrainedLayer read_trained_layer(const ByteSource& source) {
  const auto file = open_array_file(source);
  const auto down = lengths_of(*file, "experts.down.weight", 3);
  const auto chosen = lengths_of(*file, "topk_ids", 2);
  const std::int64_t experts = down[0], hidden = down[1], intermediate = down[2], tokens = chosen[0];
  TrainedLayer layer{.num_experts = static_cast<int>(experts),
                     .hidden = static_cast<int>(hidden),
                     .intermediate = static_cast<int>(intermediate),
                     .top_k = static_cast<int>(chosen[1]),
                     .num_tokens = tokens,
                     .gate_up = floats(*file, "experts.gate_up.weight", {experts, 2 * intermediate, hidden}),
                     .down = floats(*file, "experts.down.weight", down),
                     .router = floats(*file, "router.weight", {experts, hidden}),
                     .input = floats(*file, "input", {tokens, hidden}),
                     .output = floats(*file, "output", {tokens, hidden}),
                     .topk_ids = {},
                     .topk_weights = floats(*file, "topk_weights", chosen)};
  for (const std::int64_t id : read_integers(*file, "topk_ids").values) {
    if (id < 0 || id >= experts)
      throw parse_error(file->name(), "topk_ids", "expert id {} is outside 0..{}", id, experts - 1);
    layer.topk_ids.push_back(static_cast<std::int32_t>(id));
  }
  return layer;
}

}  // namespace evenkeel
