#include "evenkeel/io/sglang.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/io/internal/sglang_map.h"

namespace evenkeel {

namespace {

using internal::PhysicalRow;

}  // namespace

void write_sglang_placement(const Placement& placement, const PlacementFormatOptions& options,
                            const std::string& path) {
  const auto rows = internal::physical_rows(placement, "SGLang");
  const auto numbers = internal::layer_numbers(placement, options, "sglang");
  const std::size_t hidden = static_cast<std::size_t>(internal::num_hidden_layers(numbers, options));
  std::vector<PhysicalRow> all(hidden, internal::dealt_round(rows.front().size(), placement.num_experts()));
  for (std::size_t i = 0; i < rows.size(); ++i) all[static_cast<std::size_t>(numbers[i])] = rows[i];
  AtomicFile file(path);
  file.write("{\"physical_to_logical_map\": [\n");
  for (std::size_t i = 0; i < all.size(); ++i)
    file.write(fmt::format("  {}{}\n", internal::row_text(all[i]), i + 1 < all.size() ? "," : ""));
  file.write("]}\n");
  file.commit();
}

PlacementFile read_sglang_placement(const std::shared_ptr<const ByteSource>& source,
                                    const PlacementFormatOptions& options) {
  const std::string& file = source->name();
  const char* key = internal::kSglangMapKey;
  const IntArray map = internal::read_sglang_map(source);
  const std::size_t columns = static_cast<std::size_t>(map.shape[1]);
  std::vector<PhysicalRow> rows;
  std::vector<std::string> keys;
  std::vector<int> layers = internal::chosen_layers(static_cast<int>(map.shape[0]), options, file);
  for (int layer : layers) {
    const auto begin = map.values.begin() + static_cast<std::ptrdiff_t>(columns) * layer;
    rows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(columns));
    keys.push_back(fmt::format("{}[{}]", key, layer));
  }
  return {.placement = internal::placement_of_rows(rows, keys, internal::rows_shape(file, options))
                           .numbered(LayerNumbers(std::move(layers)))};
}

}  // namespace evenkeel
