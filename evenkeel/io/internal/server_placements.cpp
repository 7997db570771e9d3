#include "evenkeel/io/internal/server_placements.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/text.h"
#include "evenkeel/io/internal/torch_file.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using OrderedJson = nlohmann::ordered_json;

// [hidden layers, physical experts]
IntArray read_sglang_map(const ByteSource& source) {
  const std::string& name = source.name();
  if (beginning_of(source, 2) != "PK") {
    const JsonDocument json = read_json(source);
    return nested_integers(*JsonField(json, name)[sglang_map_key], 2, name, sglang_map_key);
  }
  TorchFile file(source);
  const auto found = file.pickle().find(file.pickle().root(), sglang_map_key);
  if (!found) throw ParseError(name, sglang_map_key, "is missing");
  IntArray map = file.integers(*found, sglang_map_key);
  if (map.shape.size() != 2)
    throw parse_error(name, sglang_map_key, "shape {} is not [layers, physical experts]", to_text(map.shape));
  return map;
}

// The record of this type; if there are several, they must be equal.
JsonDocument only_vllm_record(const ByteSource& source) {
  std::optional<JsonDocument> only;
  std::int64_t first_line = 0;
  for_each_json_line(source, [&](JsonDocument&& record, std::int64_t line) {
    const std::string where = fmt::format("{}: line {}", source.name(), line);
    const JsonField type = JsonField(record, where)["record_type"];
    if (*type != vllm_mapping_type) return;
    if (!only) {
      first_line = line;
      only = std::move(record);
      return;
    }
    for (const char* key : {"version", "num_redundant_experts", "num_slots", assignments_key})
      if (record.value(key, Json()) != only->value(key, Json()))
        type.fail("differs from the placement in line {}; keep one of the two", first_line);
  });
  if (!only) throw parse_error(source.name(), "record_type", "no line has \"{}\"", vllm_mapping_type);
  return std::move(*only);
}

// Throws if a number disagrees with the lists.
void require_said(const std::optional<JsonField>& said, std::int64_t expected) {
  if (!said) return;
  if (const std::int64_t number = said->integer(); number != expected)
    said->fail("is {}, but the lists give {}; vLLM-Ascend goes by the lists: make both agree", number,
               expected);
}

NamedRow read_ascend_layer(const JsonField& layer, const JsonField& devices) {
  NamedRow row{layer.key(), {}};
  const JsonField on_first = devices[0]["device_expert"];
  for (std::size_t i = 0; i < devices->size(); ++i) {
    const JsonField device = devices[i];
    require_said(device.find("device_id"), static_cast<std::int64_t>(i));
    const JsonField list = device["device_expert"];
    const auto experts = list.integers();
    if (experts.size() != on_first->size())
      list.fail("has {} experts, but device 0 has {}", experts.size(), on_first->size());
    row.experts.insert(row.experts.end(), experts.begin(), experts.end());
  }
  return row;
}

}  // namespace

ServerPlacement read_sglang(const ByteSource& source) {
  const IntArray map = read_sglang_map(source);
  ServerPlacement all;
  std::vector<int> numbers(static_cast<std::size_t>(map.shape[0]));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (const int layer : numbers) {
    const auto begin = map.values.begin() + map.shape[1] * layer;
    all.rows.push_back({fmt::format("{}[{}]", sglang_map_key, layer), {begin, begin + map.shape[1]}});
  }
  all.layers = LayerNumbers(std::move(numbers));
  return all;
}

std::string sglang_text(const ServerRows& placement) {
  std::vector<PhysicalRow> all(static_cast<std::size_t>(placement.num_hidden_layers),
                               dealt_round(placement.rows.front().size(), placement.num_experts));
  for (std::size_t i = 0; i < placement.rows.size(); ++i)
    all[static_cast<std::size_t>(placement.layers[i])] = placement.rows[i];
  std::string text = fmt::format("{{\"{}\": [\n", sglang_map_key);
  for (std::size_t i = 0; i < all.size(); ++i)
    text += fmt::format("  {}{}\n", row_text(all[i]), i + 1 < all.size() ? "," : "");
  return text + "]}\n";
}

ServerPlacement read_vllm(const ByteSource& source) {
  const JsonDocument document = only_vllm_record(source);
  const JsonField record(document, source.name());
  record["version"].integer(1, 1);
  ServerPlacement all;
  all.num_slots = record["num_slots"].integer(1, max_experts);
  all.num_experts = *all.num_slots - record["num_redundant_experts"].integer(0, *all.num_slots - 1);
  const JsonField assignments = record[assignments_key];
  for (std::size_t layer = 0; layer < assignments->size(); ++layer) {
    const JsonField row = assignments[std::to_string(layer)];
    all.rows.push_back({row.key(), row.integers()});
  }
  return all;
}

std::string vllm_text(const ServerRows& placement) {
  const int num_slots = static_cast<int>(placement.rows.front().size());
  OrderedJson record{{"record_type", vllm_mapping_type},
                     {"version", 1},
                     {"num_redundant_experts", num_slots - placement.num_experts},
                     {"num_slots", num_slots}};
  for (std::size_t i = 0; i < placement.rows.size(); ++i)
    record[assignments_key][std::to_string(i)] = placement.rows[i];
  return record.dump() + "\n";
}

ServerPlacement read_vllm_ascend(const ByteSource& source) {
  const JsonDocument document = read_json(source);
  const JsonField json(document, source.name());
  const std::int64_t count = json["moe_layer_count"].integer();
  const JsonField layers = json["layer_list"];
  if (!layers->is_array() || std::ssize(*layers) != count)
    layers.fail("is not a list of moe_layer_count = {} layers", count);
  ServerPlacement all;
  std::vector<int> numbers;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    const JsonField layer = layers[i];
    const JsonField devices = layer["device_list"];
    if (!devices->is_array() || devices->empty()) devices.fail("is not a list of devices");
    const int num_ranks = static_cast<int>(devices->size());
    if (all.num_ranks.value_or(num_ranks) != num_ranks)
      devices.fail("has {} devices, but the first layer has {}", num_ranks, *all.num_ranks);
    all.num_ranks = num_ranks;
    const auto id = layer.find("layer_id");
    const int first = id ? id->integer(0, max_layers - 1) : 0;
    numbers.push_back(numbers.empty() ? first : numbers.back() + 1);
    require_said(id, numbers.back());
    require_said(layer.find("device_count"), num_ranks);
    all.rows.push_back(read_ascend_layer(layer, devices));
  }
  if (!numbers.empty() && numbers.front() > 0) all.layers = LayerNumbers(std::move(numbers));
  return all;
}

std::string vllm_ascend_text(const ServerRows& placement) {
  OrderedJson json{{"moe_layer_count", placement.rows.size()}};
  const auto on_rank = std::ssize(placement.rows.front()) / placement.num_ranks;
  for (std::size_t i = 0; i < placement.rows.size(); ++i) {
    OrderedJson& layer =
        json["layer_list"].emplace_back(OrderedJson{{"layer_id", i}, {"device_count", placement.num_ranks}});
    for (int rank = 0; rank < placement.num_ranks; ++rank) {
      const auto begin = placement.rows[i].begin() + rank * on_rank;
      layer["device_list"].push_back(
          OrderedJson{{"device_id", rank}, {"device_expert", PhysicalRow(begin, begin + on_rank)}});
    }
  }
  return json.dump() + "\n";
}

}  // namespace evenkeel::internal
