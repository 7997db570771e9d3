#include "evenkeel/io/placement_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
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

// The list of one layer in a list by layer.
JsonField of_layer(const JsonField& lists, std::size_t layer, const Shape& shape) {
  if (!lists->is_array() || lists->size() != static_cast<std::size_t>(shape.num_layers))
    lists.fail("is not a list of {} layers", shape.num_layers);
  return lists[layer];
}

// Where each rank's physical experts begin in one layer: as the file says, or all ranks equally many.
std::vector<std::int64_t> rank_offsets(const JsonField& json, std::size_t layer, std::size_t num_physical,
                                       const Shape& shape) {
  const std::size_t ranks = static_cast<std::size_t>(shape.num_ranks);
  std::vector<std::int64_t> offsets;
  if (const auto stated = json.stated("rank_offsets")) {
    const JsonField list = of_layer(*stated, layer, shape);
    offsets = list.integers();
    if (offsets.size() != ranks + 1 || offsets.front() != 0 || !std::ranges::is_sorted(offsets) ||
        offsets.back() != static_cast<std::int64_t>(num_physical))
      list.fail("is not {} ascending offsets from 0 to {}", ranks + 1, num_physical);
    return offsets;
  }
  if (num_physical % ranks != 0)
    json["physical_to_logical"][layer].fail(
        "{} physical experts are not equally many on {} ranks, and there are no rank_offsets", num_physical,
        ranks);
  for (std::size_t rank = 0; rank <= ranks; ++rank)
    offsets.push_back(static_cast<std::int64_t>(rank * (num_physical / ranks)));
  return offsets;
}

// owners[layer][expert], where the owner is not the first rank that holds a copy.
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
  const JsonField list = json["physical_to_logical"][layer];
  const auto physical = list.integers();
  const auto offsets = rank_offsets(json, layer, physical.size(), shape);
  std::vector<std::vector<int>> homes(static_cast<std::size_t>(shape.num_experts));
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const auto begin = static_cast<std::size_t>(offsets[static_cast<std::size_t>(rank)]);
    const auto end = static_cast<std::size_t>(offsets[static_cast<std::size_t>(rank) + 1]);
    for (std::size_t i = begin; i < end; ++i) {
      if (physical[i] < 0 || physical[i] >= shape.num_experts)
        list[i].fail("expert {} is outside 0..{}", physical[i], shape.num_experts - 1);
      auto& of_expert = homes[static_cast<std::size_t>(physical[i])];
      if (!of_expert.empty() && of_expert.back() == rank)
        list[i].fail("rank {} holds expert {} twice", rank, physical[i]);
      of_expert.push_back(rank);
    }
  }
  const auto homeless = std::ranges::find_if(homes, [](const auto& of_expert) { return of_expert.empty(); });
  if (homeless != homes.end()) list.fail("expert {} is on no rank", homeless - homes.begin());
  put_owners_first(json, layer, shape, homes);
  return LayerPlacement(homes, shape.num_ranks);
}

// Every expert needs a physical one in every layer: a file too short for its own numbers is refused before
// anything is made of their size.
Shape read_shape(const JsonField& json) {
  require_format(json, placement_format);
  const Shape shape{.num_layers = json["num_layers"].integer(1, max_layers),
                    .num_experts = json["num_experts"].integer(1, max_experts),
                    .num_ranks = json["num_ranks"].integer(1, max_ranks)};
  const JsonField layers = json["physical_to_logical"];
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(shape.num_layers); ++layer) {
    const JsonField list = of_layer(layers, layer, shape);
    if (!list->is_array() || list->size() < static_cast<std::size_t>(shape.num_experts))
      list.fail("is not a list of at least {} experts", shape.num_experts);
  }
  return shape;
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
  bool equal = true;  // all ranks have equally many
  bool first = true;  // an expert's owner is the first rank that has it
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
                      "is {}; a placement is JSON. A map of slots to experts in an array is taken as "
                      "{{\"physical_to_logical_map\": ...}} in JSON or a torch file",
                      name_of(format));
  const JsonDocument document = read_json(source);
  const JsonField json(document, file);
  const Shape shape = read_shape(json);
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
