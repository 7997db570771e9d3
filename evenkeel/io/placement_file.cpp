#include "evenkeel/io/placement_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

namespace {

using internal::Json;

constexpr std::string_view placement_format = "evenkeel.placement.v1";

// The sizes that the file states before its layers.
struct Shape {
  std::string file;
  int num_layers;
  int num_experts;
  int num_ranks;
};

// Where each rank's physical experts begin in one layer: as the file says, or all ranks equally many.
std::vector<std::int64_t> rank_offsets(const Json& json, std::size_t layer, std::size_t num_physical,
                                       const Shape& shape) {
  const auto stated = json.find("rank_offsets");
  const std::size_t ranks = static_cast<std::size_t>(shape.num_ranks);
  std::vector<std::int64_t> offsets;
  if (stated == json.end() || stated->is_null()) {
    if (num_physical % ranks != 0)
      throw ParseError(shape.file, fmt::format("physical_to_logical[{}]", layer),
                       fmt::format("{} physical experts are not equally many on {} ranks, and there are no "
                                   "rank_offsets",
                                   num_physical, ranks));
    for (std::size_t rank = 0; rank <= ranks; ++rank)
      offsets.push_back(static_cast<std::int64_t>(rank * (num_physical / ranks)));
    return offsets;
  }
  if (!stated->is_array() || stated->size() != static_cast<std::size_t>(shape.num_layers))
    throw ParseError(shape.file, "rank_offsets", fmt::format("is not a list of {} layers", shape.num_layers));
  const std::string key = fmt::format("rank_offsets[{}]", layer);
  offsets = internal::integers((*stated)[layer], shape.file, key);
  if (offsets.size() != ranks + 1 || offsets.front() != 0 ||
      !std::is_sorted(offsets.begin(), offsets.end()) ||
      offsets.back() != static_cast<std::int64_t>(num_physical))
    throw ParseError(shape.file, key,
                     fmt::format("is not {} ascending offsets from 0 to {}", ranks + 1, num_physical));
  return offsets;
}

// owners[layer][expert], where the owner is not the first rank that holds a copy.
void put_owners_first(const Json& json, std::size_t layer, const Shape& shape,
                      std::vector<std::vector<int>>& homes) {
  const auto stated = json.find("owners");
  if (stated == json.end() || stated->is_null()) return;
  if (!stated->is_array() || stated->size() != static_cast<std::size_t>(shape.num_layers))
    throw ParseError(shape.file, "owners", fmt::format("is not a list of {} layers", shape.num_layers));
  const std::string key = fmt::format("owners[{}]", layer);
  const auto owners = internal::integers((*stated)[layer], shape.file, key);
  if (owners.size() != homes.size())
    throw ParseError(shape.file, key,
                     fmt::format("has {} ranks for {} experts", owners.size(), homes.size()));
  for (std::size_t e = 0; e < homes.size(); ++e) {
    const auto owner = std::find(homes[e].begin(), homes[e].end(), owners[e]);
    if (owner == homes[e].end())
      throw ParseError(shape.file, key,
                       fmt::format("rank {} owns expert {} but has no copy of it", owners[e], e));
    std::rotate(homes[e].begin(), owner, owner + 1);
  }
}

LayerPlacement read_layer(const Json& json, std::size_t layer, const Shape& shape) {
  const std::string key = fmt::format("physical_to_logical[{}]", layer);
  const auto physical = internal::integers(json["physical_to_logical"][layer], shape.file, key);
  const auto offsets = rank_offsets(json, layer, physical.size(), shape);
  std::vector<std::vector<int>> homes(static_cast<std::size_t>(shape.num_experts));
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const auto begin = static_cast<std::size_t>(offsets[static_cast<std::size_t>(rank)]);
    const auto end = static_cast<std::size_t>(offsets[static_cast<std::size_t>(rank) + 1]);
    for (std::size_t i = begin; i < end; ++i) {
      if (physical[i] < 0 || physical[i] >= shape.num_experts)
        throw ParseError(shape.file, fmt::format("{}[{}]", key, i),
                         fmt::format("expert {} is outside 0..{}", physical[i], shape.num_experts - 1));
      auto& of_expert = homes[static_cast<std::size_t>(physical[i])];
      if (!of_expert.empty() && of_expert.back() == rank)
        throw ParseError(shape.file, fmt::format("{}[{}]", key, i),
                         fmt::format("rank {} holds expert {} twice", rank, physical[i]));
      of_expert.push_back(rank);
    }
  }
  const auto homeless =
      std::find_if(homes.begin(), homes.end(), [](const auto& of_expert) { return of_expert.empty(); });
  if (homeless != homes.end())
    throw ParseError(shape.file, key, fmt::format("expert {} is on no rank", homeless - homes.begin()));
  put_owners_first(json, layer, shape, homes);
  return LayerPlacement(homes, shape.num_ranks);
}

Shape read_shape(const Json& json, const std::string& file) {
  const Json& format = internal::member(json, "format", file);
  if (format != placement_format)
    throw ParseError(file, "format", fmt::format("is {}, not \"{}\"", format.dump(), placement_format));
  const auto number = [&](const char* key, std::int64_t most) {
    return internal::small_integer(internal::member(json, key, file), 1, most, file, key);
  };
  Shape shape{.file = file,
              .num_layers = number("num_layers", max_layers),
              .num_experts = number("num_experts", max_experts),
              .num_ranks = number("num_ranks", max_ranks)};
  const Json& layers = internal::member(json, "physical_to_logical", file);
  if (!layers.is_array() || layers.size() != static_cast<std::size_t>(shape.num_layers))
    throw ParseError(file, "physical_to_logical",
                     fmt::format("is not a list of {} layers", shape.num_layers));
  return shape;
}

// Every expert needs a physical one in every layer: a file too short for its own numbers is refused before
// anything is made of their size.
void require_long_enough(const Json& json, const Shape& shape) {
  const Json& layers = json["physical_to_logical"];
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (!layers[layer].is_array() || layers[layer].size() < static_cast<std::size_t>(shape.num_experts))
      throw ParseError(shape.file, fmt::format("physical_to_logical[{}]", layer),
                       fmt::format("is not a list of at least {} experts", shape.num_experts));
  }
}

std::optional<double> optional_number(const Json& json, const char* key, const std::string& file) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  if (!found->is_number())
    throw ParseError(file, key, fmt::format("is a JSON {}, not a number", found->type_name()));
  return found->get<double>();
}

std::map<std::string, std::string> read_provenance(const Json& json, const std::string& file) {
  std::map<std::string, std::string> provenance;
  const auto found = json.find("provenance");
  if (found == json.end() || found->is_null()) return provenance;
  if (!found->is_object()) throw ParseError(file, "provenance", "is not a JSON object");
  for (const auto& [key, value] : found->items())
    provenance[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return provenance;
}

std::optional<int> read_layer_updates(const Json& json, const std::string& file) {
  const char* key = "layer_updates_per_iter";
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  return internal::small_integer(*found, 0, max_layers, file, key);
}

// The physical experts of one layer, rank after rank; true if all ranks have equally many.
bool append_layer(const LayerPlacement& layer, nlohmann::json& physical, nlohmann::json& offsets) {
  physical = nlohmann::json::array();
  offsets = nlohmann::json::array({0});
  bool equal = true;
  for (RankId rank : indices<RankId>(layer.num_ranks())) {
    for (ExpertId expert : layer.natives(rank)) physical.push_back(expert.value());
    offsets.push_back(physical.size());
    equal = equal && layer.natives(rank).size() == layer.natives(RankId(0)).size();
  }
  return equal;
}

nlohmann::json owners_of(const LayerPlacement& layer) {
  nlohmann::json owners = nlohmann::json::array();
  for (ExpertId expert : indices<ExpertId>(layer.num_experts()))
    owners.push_back(layer.owner(expert).value());
  return owners;
}

bool owner_is_first(const LayerPlacement& layer) {
  for (ExpertId expert : indices<ExpertId>(layer.num_experts())) {
    const auto homes = layer.homes(expert);
    if (*std::min_element(homes.begin(), homes.end()) != homes.front()) return false;
  }
  return true;
}

nlohmann::json placement_json(const PlacementFile& file) {
  const Placement& placement = file.placement;
  nlohmann::json json{{"format", placement_format},
                      {"num_layers", placement.num_layers()},
                      {"num_experts", placement.num_experts()},
                      {"num_ranks", placement.num_ranks()},
                      {"provenance", file.provenance}};
  if (file.objective) json["objective"] = *file.objective;
  if (file.bound) json["bound"] = *file.bound;
  if (placement.layers().known()) json["layers"] = placement.layers().numbers();
  if (file.layer_updates_per_iter) json["layer_updates_per_iter"] = *file.layer_updates_per_iter;
  bool equal = true;
  bool first = true;
  nlohmann::json offsets = nlohmann::json::array();
  nlohmann::json owners = nlohmann::json::array();
  for (int l = 0; l < placement.num_layers(); ++l) {
    const LayerPlacement& layer = placement.layer(l);
    equal = append_layer(layer, json["physical_to_logical"].emplace_back(), offsets.emplace_back()) && equal;
    first = owner_is_first(layer) && first;
    owners.push_back(owners_of(layer));
  }
  if (!equal) json["rank_offsets"] = std::move(offsets);
  if (!first) json["owners"] = std::move(owners);
  return json;
}

}  // namespace

PlacementFile read_placement(const std::string& path) {
  return read_placement(open_source(path));
}

PlacementFile read_placement(std::shared_ptr<const ByteSource> source) {
  const std::string file = source->name();
  if (const FileFormat format = detect_format(*source); format != FileFormat::json)
    throw ParseError(
        file, "",
        fmt::format("is {}; a placement is JSON. A map of slots to experts in an array is taken as "
                    "{{\"physical_to_logical_map\": ...}} in JSON or a torch file",
                    name_of(format)));
  const internal::JsonDocument json = internal::read_json(*source);
  const Shape shape = read_shape(json, file);
  require_long_enough(json, shape);
  std::vector<LayerPlacement> layers;
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(shape.num_layers); ++layer)
    layers.push_back(read_layer(json, layer, shape));
  return {.placement = Placement(std::move(layers), internal::layers_in(json, shape.num_layers, file)),
          .objective = optional_number(json, "objective", file),
          .bound = optional_number(json, "bound", file),
          .provenance = read_provenance(json, file),
          .layer_updates_per_iter = read_layer_updates(json, file)};
}

void write_placement(const PlacementFile& file, const std::string& path) {
  AtomicFile out(path);
  out.write(placement_json(file).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  out.commit();
}

}  // namespace evenkeel
