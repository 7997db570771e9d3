#include "evenkeel/io/placement_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr std::string_view placement_format = "evenkeel.placement.v1";

// The sizes that the file states before its layers.
struct Shape {
  int num_layers;
  int num_experts;
  int num_ranks;
};

// Element `layer` of a list with one element for each layer.
JsonField of_layer(const JsonField& lists, std::size_t layer, const Shape& shape) {
  if (!lists->is_array() || lists->size() != static_cast<std::size_t>(shape.num_layers))
    lists.fail("is not a list of num_layers = {} layers", shape.num_layers);
  return lists[layer];
}

// The file's rank_offsets; without them all ranks have equally many slots.
std::vector<std::int64_t> rank_offsets(const JsonField& json, std::size_t layer, const NamedRow& row,
                                       const Shape& shape) {
  const auto stated = json.stated("rank_offsets");
  if (!stated) return even_offsets(row, shape.num_ranks, json.file(), ", and there are no rank_offsets");
  const JsonField list = of_layer(*stated, layer, shape);
  auto offsets = list.integers();
  if (std::ssize(offsets) != shape.num_ranks + 1 || offsets.front() != 0 ||
      !std::ranges::is_sorted(offsets) || offsets.back() != std::ssize(row.experts))
    list.fail("is not {} ascending offsets from 0 to {}", shape.num_ranks + 1, row.experts.size());
  return offsets;
}

// Makes each expert's owner, owners[layer][expert], the first of its homes. The file has `owners` only if
// some owner is not the first rank with a copy.
void put_owners_first(const JsonField& json, std::size_t layer, const Shape& shape,
                      std::vector<std::vector<int>>& homes) {
  const auto stated = json.stated("owners");
  if (!stated) return;
  const JsonField list = of_layer(*stated, layer, shape);
  const auto owners = list.integers();
  if (owners.size() != homes.size()) list.fail("has {} ranks for {} experts", owners.size(), homes.size());
  for (std::size_t e = 0; e < homes.size(); ++e) {
    const auto owner = std::ranges::find(homes[e], owners[e]);
    if (owner == homes[e].end()) list.fail("rank {} owns expert {} but has no copy of it", owners[e], e);
    std::rotate(homes[e].begin(), owner, owner + 1);
  }
}

LayerPlacement read_layer(const JsonField& json, std::size_t layer, const Shape& shape) {
  const JsonField list = of_layer(json["physical_to_logical"], layer, shape);
  const NamedRow row{list.key(), list.integers()};
  auto homes = homes_in(row, rank_offsets(json, layer, row, shape), shape.num_experts, json.file());
  put_owners_first(json, layer, shape, homes);
  return LayerPlacement(homes, shape.num_ranks);
}

std::optional<double> optional_number(const JsonField& json, const char* key) {
  const auto found = json.stated(key);
  return found ? std::optional(found->number()) : std::nullopt;
}

std::map<std::string, std::string> read_provenance(const JsonField& json) {
  std::map<std::string, std::string> provenance;
  const auto found = json.stated("provenance");
  if (!found) return provenance;
  if (!(*found)->is_object()) found->fail("is not a JSON object");
  for (const auto& [key, value] : (*found)->items())
    provenance[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return provenance;
}

Json placement_json(const PlacementFile& file) {
  const Placement& placement = file.placement;
  Json json{{"format", placement_format},
            {"num_layers", placement.num_layers()},
            {"num_experts", placement.num_experts()},
            {"num_ranks", placement.num_ranks()},
            {"provenance", file.provenance}};
  if (file.objective) json["objective"] = *file.objective;
  if (file.bound) json["bound"] = *file.bound;
  if (placement.layers().known()) json["layers"] = placement.layers().numbers();
  if (file.layer_updates_per_iter) json["layer_updates_per_iter"] = *file.layer_updates_per_iter;
  bool equal = true;  // all ranks hold equally many experts
  bool first = true;  // every expert's owner is the first rank that has it
  Json offsets = Json::array();
  Json owners = Json::array();
  for (int l = 0; l < placement.num_layers(); ++l) {
    const LayerPlacement& layer = placement.layer(l);
    auto& physical = json["physical_to_logical"].emplace_back(Json::array());
    auto& of_layer = offsets.emplace_back(Json::array({0}));
    for (RankId rank : indices<RankId>(layer.num_ranks())) {
      for (ExpertId expert : layer.natives(rank)) physical.push_back(expert.value());
      of_layer.push_back(physical.size());
      equal = equal && layer.natives(rank).size() == layer.natives(RankId(0)).size();
    }
    auto& of_experts = owners.emplace_back(Json::array());
    for (ExpertId expert : indices<ExpertId>(layer.num_experts())) {
      of_experts.push_back(layer.owner(expert).value());
      first = first && layer.owner(expert) == std::ranges::min(layer.homes(expert));
    }
  }
  if (!equal) json["rank_offsets"] = std::move(offsets);
  if (!first) json["owners"] = std::move(owners);
  return json;
}

}  // namespace

PlacementFile read_placement(const ByteSource& source) {
  const std::string& file = source.name();
  if (const FileFormat format = detect_format(source); format != FileFormat::json)
    throw parse_error(file, "",
                      "is a {} file, from which no placement is read; write a map of slots to experts as "
                      "{{\"physical_to_logical_map\": ...}} in JSON or a torch file",
                      name_of(format));
  const JsonDocument document = read_json(source);
  const JsonField json(document, file);
  require_format(json, placement_format);
  const Shape shape{.num_layers = json["num_layers"].integer(1, max_layers),
                    .num_experts = json["num_experts"].integer(1, max_experts),
                    .num_ranks = json["num_ranks"].integer(1, max_ranks)};
  std::vector<LayerPlacement> layers;
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(shape.num_layers); ++layer)
    layers.push_back(read_layer(json, layer, shape));
  PlacementFile read{.placement = Placement(std::move(layers), layers_in(document, shape.num_layers, file)),
                     .objective = optional_number(json, "objective"),
                     .bound = optional_number(json, "bound"),
                     .provenance = read_provenance(json)};
  if (const auto updates = json.stated("layer_updates_per_iter"))
    read.layer_updates_per_iter = updates->integer(0, max_layers);
  return read;
}

void write_placement(const PlacementFile& file, const std::string& path) {
  write_file(path, placement_json(file).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace evenkeel
