#include "evenkeel/io/vllm_ascend.h"

#include <fmt/format.h>

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

using namespace internal;

namespace {

std::string layer_text(std::size_t layer, const PhysicalRow& row, int num_ranks) {
  const std::size_t on_rank = row.size() / static_cast<std::size_t>(num_ranks);
  std::string text =
      fmt::format("  {{\"layer_id\": {}, \"device_count\": {}, \"device_list\": [\n", layer, num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto experts = std::span(row).subspan(static_cast<std::size_t>(rank) * on_rank, on_rank);
    text += fmt::format("    {{\"device_id\": {}, \"device_expert\": {}}}{}\n", rank, row_text(experts),
                        rank + 1 < num_ranks ? "," : "");
  }
  return text + "  ]}";
}

// A label must say the same as the list.
void require_label(const JsonField& object, const char* label, std::int64_t expected,
                   const std::string& why) {
  const auto found = object.find(label);
  if (!found) return;
  if (const std::int64_t stated = found->integer(); stated != expected)
    found->fail("is {}, but {}", stated, why);
}

// An id must be the place in the list.
void require_place(const JsonField& object, const char* label, std::int64_t expected, const char* what) {
  require_label(object, label, expected,
                fmt::format("is at the place of {} {}; vLLM-Ascend goes by the order of the list, not by the "
                            "ids: put both in agreement",
                            what, expected));
}

// Labels from 0 on, or from the number of the model's dense layers on; 0 where there are none.
int first_layer(const JsonField& layers) {
  int first = 0;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    const JsonField layer = layers[i];
    if (!layer->is_object()) layer.fail("is not a JSON object");
    const auto label = layer.find("layer_id");
    if (i == 0 && label) first = label->integer(0, max_layers - 1);
    require_place(layer, "layer_id", first + static_cast<int>(i), "layer");
  }
  return first;
}

// The row of one layer; `num_ranks` is that of the layers before, 0 for the first, and is set.
NamedRow row_of(const JsonField& layer, int& num_ranks) {
  const auto devices = layer.find("device_list");
  if (!devices || !(*devices)->is_array() || (*devices)->empty())
    throw ParseError(layer.file(), layer.key() + ".device_list", "is not a list of devices");
  const int count = static_cast<int>((*devices)->size());
  if (num_ranks == 0) num_ranks = count;
  if (count != num_ranks) devices->fail("has {} devices where the first has {}", count, num_ranks);
  require_label(layer, "device_count", num_ranks, fmt::format("device_list has {} devices", num_ranks));
  NamedRow row{layer.key(), {}};
  std::size_t on_first = 0;
  for (int device = 0; device < count; ++device) {
    const JsonField one = (*devices)[static_cast<std::size_t>(device)];
    if (!one->is_object() || !one->contains("device_expert"))
      throw ParseError(one.file(), one.key() + ".device_expert", "is missing");
    require_place(one, "device_id", device, "device");
    const JsonField list = one["device_expert"];
    const auto experts = list.integers();
    if (device == 0) on_first = experts.size();
    if (experts.size() != on_first)
      list.fail("has {} experts where device 0 has {}", experts.size(), on_first);
    row.experts.insert(row.experts.end(), experts.begin(), experts.end());
  }
  return row;
}

}  // namespace

void write_vllm_ascend_placement(const Placement& placement, const std::string& path) {
  const auto rows = physical_rows(placement, "vLLM-Ascend");
  std::string text = fmt::format("{{\"moe_layer_count\": {}, \"layer_list\": [\n", rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += layer_text(i, rows[i], placement.num_ranks()) + (i + 1 < rows.size() ? ",\n" : "\n");
  write_file(path, text + "]}\n");
}

Placement read_vllm_ascend_placement(const ByteSource& source, const PlacementFormatOptions& options) {
  const std::string& file = source.name();
  const JsonDocument document = read_json(source);
  const JsonField json(document, file);
  const std::int64_t count = json["moe_layer_count"].integer();
  const JsonField layers = json["layer_list"];
  if (!layers->is_array() || std::ssize(*layers) != count)
    layers.fail("is not a list of moe_layer_count = {} layers", count);
  const int first = first_layer(layers);
  int num_ranks = 0;
  std::vector<NamedRow> rows;
  for (std::size_t i = 0; i < layers->size(); ++i) rows.push_back(row_of(layers[i], num_ranks));
  if (options.num_ranks && !rows.empty() && *options.num_ranks != num_ranks)
    throw InvalidArgument("ranks",
                          fmt::format("{}, but {} has {} devices", *options.num_ranks, file, num_ranks),
                          fmt::format("{}, or a placement for {}", num_ranks, *options.num_ranks));
  Placement placement =
      placement_of_rows(rows, {.file = file, .num_ranks = num_ranks, .num_experts = options.num_experts});
  if (first == 0) return placement;
  std::vector<int> numbers(rows.size());
  std::iota(numbers.begin(), numbers.end(), first);
  return placement.numbered(LayerNumbers(std::move(numbers)));
}

}  // namespace evenkeel
