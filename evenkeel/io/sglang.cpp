#include "evenkeel/io/sglang.h"

#include <fmt/format.h>

#include <utility>

#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/torch_file.h"

namespace evenkeel {

using namespace internal;

namespace {

// [hidden layers, physical experts]
IntArray read_map(const ByteSource& source) {
  const std::string& name = source.name();
  if (beginning_of(source, 2) != "PK") {
    const JsonDocument json = read_json(source);
    return nested_integers(*JsonField(json, name)[sglang_map_key], 2, name, sglang_map_key);
  }
  TorchFile file(source);
  const auto found = file.pickle().find(file.pickle().root(), sglang_map_key);
  if (!found) throw ParseError(name, sglang_map_key, "is missing");
  if (!file.is_tensor(*found))
    throw parse_error(name, sglang_map_key, "is {}, not a tensor", file.pickle().kind_name(*found));
  IntArray map = file.integers(*found, sglang_map_key);
  if (map.shape.size() != 2)
    throw parse_error(name, sglang_map_key, "shape {} is not [layers, physical experts]", to_text(map.shape));
  return map;
}

}  // namespace

void write_sglang_placement(const Placement& placement, const PlacementFormatOptions& options,
                            const std::string& path) {
  const auto rows = physical_rows(placement, "SGLang");
  const auto numbers = layer_numbers(placement, options, "sglang");
  const std::size_t hidden = static_cast<std::size_t>(num_hidden_layers(numbers, options));
  std::vector<PhysicalRow> all(hidden, dealt_round(rows.front().size(), placement.num_experts()));
  for (std::size_t i = 0; i < rows.size(); ++i) all[static_cast<std::size_t>(numbers[i])] = rows[i];
  std::string text = "{\"physical_to_logical_map\": [\n";
  for (std::size_t i = 0; i < all.size(); ++i)
    text += fmt::format("  {}{}\n", row_text(all[i]), i + 1 < all.size() ? "," : "");
  write_file(path, text + "]}\n");
}

PlacementFile read_sglang_placement(const ByteSource& source, const PlacementFormatOptions& options) {
  const IntArray map = read_map(source);
  const auto width = static_cast<std::ptrdiff_t>(map.shape[1]);
  std::vector<NamedRow> rows;
  std::vector<int> layers = chosen_layers(static_cast<int>(map.shape[0]), options, source.name());
  for (int layer : layers) {
    const auto begin = map.values.begin() + width * layer;
    rows.push_back({fmt::format("{}[{}]", sglang_map_key, layer), {begin, begin + width}});
  }
  return {.placement = placement_of_rows(rows, rows_shape(source.name(), options))
                           .numbered(LayerNumbers(std::move(layers)))};
}

}  // namespace evenkeel
