#include "evenkeel/io/vllm_ascend.h"

#include <fmt/format.h>

#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

namespace {

using internal::Json;
using internal::PhysicalRow;

std::string layer_text(std::size_t layer, const PhysicalRow& row, int num_ranks) {
  const std::size_t on_rank = row.size() / static_cast<std::size_t>(num_ranks);
  std::string text =
      fmt::format("  {{\"layer_id\": {}, \"device_count\": {}, \"device_list\": [\n", layer, num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto experts = std::span(row).subspan(static_cast<std::size_t>(rank) * on_rank, on_rank);
    text += fmt::format("    {{\"device_id\": {}, \"device_expert\": {}}}{}\n", rank,
                        internal::row_text(experts), rank + 1 < num_ranks ? "," : "");
  }
  return text + "  ]}";
}

// A label must say the same as the list.
void require_label(const Json& object, const char* label, std::int64_t expected, const std::string& file,
                   const std::string& key, const std::string& why) {
  const auto found = object.find(label);
  if (found == object.end()) return;
  const std::string at = fmt::format("{}.{}", key, label);
  if (const std::int64_t stated = internal::integer(*found, file, at); stated != expected)
    throw ParseError(file, at, fmt::format("is {}, but {}", stated, why));
}

// Labels from 0 on, or from the number of the model's dense layers on; 0 where there are none.
int first_layer(const Json& layers, const std::string& file) {
  int first = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string key = fmt::format("layer_list[{}]", i);
    if (!layers[i].is_object()) throw ParseError(file, key, "is not a JSON object");
    const auto label = layers[i].find("layer_id");
    if (i == 0 && label != layers[i].end())
      first = internal::small_integer(*label, 0, max_layers - 1, file, key + ".layer_id");
    const int expected = first + static_cast<int>(i);
    require_label(
        layers[i], "layer_id", expected, file, key,
        fmt::format("is at the place of layer {}; vLLM-Ascend goes by the order of the list, not by "
                    "the ids: put both in agreement",
                    expected));
  }
  return first;
}

// The row of one layer; `num_ranks` is that of the layers before, 0 for the first, and is set.
PhysicalRow row_of(const Json& layer, const std::string& file, const std::string& key, int& num_ranks) {
  if (!layer.is_object()) throw ParseError(file, key, "is not a JSON object");
  const auto devices = layer.find("device_list");
  if (devices == layer.end() || !devices->is_array() || devices->empty())
    throw ParseError(file, key + ".device_list", "is not a list of devices");
  if (num_ranks == 0) num_ranks = static_cast<int>(devices->size());
  if (static_cast<int>(devices->size()) != num_ranks)
    throw ParseError(file, key + ".device_list",
                     fmt::format("has {} devices where the first has {}", devices->size(), num_ranks));
  require_label(layer, "device_count", num_ranks, file, key,
                fmt::format("device_list has {} devices", num_ranks));
  PhysicalRow row;
  std::size_t on_first = 0;
  for (std::size_t device = 0; device < devices->size(); ++device) {
    const std::string at = fmt::format("{}.device_list[{}].device_expert", key, device);
    const Json& one = (*devices)[device];
    if (!one.is_object() || !one.contains("device_expert")) throw ParseError(file, at, "is missing");
    require_label(
        one, "device_id", static_cast<std::int64_t>(device), file,
        fmt::format("{}.device_list[{}]", key, device),
        fmt::format("is at the place of device {}; vLLM-Ascend goes by the order of the list, not by "
                    "the ids: put both in agreement",
                    device));
    const auto experts = internal::integers(one["device_expert"], file, at);
    if (device == 0) on_first = experts.size();
    if (experts.size() != on_first)
      throw ParseError(file, at,
                       fmt::format("has {} experts where device 0 has {}", experts.size(), on_first));
    row.insert(row.end(), experts.begin(), experts.end());
  }
  return row;
}

}  // namespace

void write_vllm_ascend_placement(const Placement& placement, const std::string& path) {
  const auto rows = internal::physical_rows(placement, "vLLM-Ascend");
  AtomicFile file(path);
  file.write(fmt::format("{{\"moe_layer_count\": {}, \"layer_list\": [\n", rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    file.write(layer_text(i, rows[i], placement.num_ranks()));
    file.write(i + 1 < rows.size() ? ",\n" : "\n");
  }
  file.write("]}\n");
  file.commit();
}

Placement read_vllm_ascend_placement(const ByteSource& source, const PlacementFormatOptions& options) {
  const std::string& file = source.name();
  const internal::JsonDocument json = internal::read_json(source);
  const auto count =
      internal::integer(internal::member(json, "moe_layer_count", file), file, "moe_layer_count");
  const Json& layers = internal::member(json, "layer_list", file);
  if (!layers.is_array() || std::ssize(layers) != count)
    throw ParseError(file, "layer_list", fmt::format("is not a list of moe_layer_count = {} layers", count));
  const int first = first_layer(layers, file);
  int num_ranks = 0;
  std::vector<PhysicalRow> rows;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    keys.push_back(fmt::format("layer_list[{}]", i));
    rows.push_back(row_of(layers[i], file, keys.back(), num_ranks));
  }
  if (options.num_ranks && !rows.empty() && *options.num_ranks != num_ranks)
    throw InvalidArgument("ranks",
                          fmt::format("{}, but {} has {} devices", *options.num_ranks, file, num_ranks),
                          fmt::format("{}, or a placement for {}", num_ranks, *options.num_ranks));
  Placement placement = internal::placement_of_rows(
      rows, keys, {.file = file, .num_ranks = num_ranks, .num_experts = options.num_experts});
  if (first == 0) return placement;
  std::vector<int> numbers(rows.size());
  std::iota(numbers.begin(), numbers.end(), first);
  return placement.numbered(LayerNumbers(std::move(numbers)));
}

}  // namespace evenkeel
