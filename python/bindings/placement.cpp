// _native.Placement: homes of every expert of every layer, from lists or files.
#include "evenkeel/plan/placement.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/unplaced_layers.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"
#include "python/bindings/interruptible.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

using Homes = std::vector<std::vector<std::vector<int>>>;  // [L][E][copies]
using Provenance = std::map<std::string, std::string>;

Placement of_homes(const Homes& homes, int num_ranks) {
  std::vector<LayerPlacement> layers;
  for (const auto& of_layer : homes) layers.emplace_back(of_layer, num_ranks);
  return Placement(std::move(layers));
}

std::vector<int> homes_of(const Placement& placement, int layer, int expert) {
  const LayerPlacement& of_layer = placement.layer(layer);
  if (expert < 0 || expert >= placement.num_experts())
    throw InvalidArgument("expert", "no expert " + std::to_string(expert),
                          "0.." + std::to_string(placement.num_experts() - 1));
  std::vector<int> ranks;
  for (RankId rank : of_layer.homes(ExpertId(expert))) ranks.push_back(rank.value());
  return ranks;
}

OutArray<std::int64_t> owners_of(const Placement& placement) {
  std::vector<std::int64_t> owners;
  for (int l = 0; l < placement.num_layers(); ++l)
    for (ExpertId expert : indices<ExpertId>(placement.num_experts()))
      owners.push_back(placement.layer(l).owner(expert).value());
  return to_array(std::move(owners), {static_cast<std::size_t>(placement.num_layers()),
                                      static_cast<std::size_t>(placement.num_experts())});
}

bool has_single_homes(const Placement& placement) {
  for (int l = 0; l < placement.num_layers(); ++l)
    if (!placement.layer(l).has_single_homes()) return false;
  return true;
}

// Physical experts [L, most of any layer], rank after rank, padded with -1; and the ranks' offsets [L, P +
// 1].
std::tuple<OutArray<std::int64_t>, OutArray<std::int64_t>> physical_of(const Placement& placement) {
  std::vector<std::vector<std::int64_t>> physical(static_cast<std::size_t>(placement.num_layers()));
  std::vector<std::int64_t> offsets;
  std::size_t most = 0;
  for (std::size_t l = 0; l < physical.size(); ++l) {
    offsets.push_back(0);
    for (RankId rank : indices<RankId>(placement.num_ranks())) {
      for (ExpertId expert : placement.layer(static_cast<int>(l)).natives(rank))
        physical[l].push_back(expert.value());
      offsets.push_back(static_cast<std::int64_t>(physical[l].size()));
    }
    most = std::max(most, physical[l].size());
  }
  std::vector<std::int64_t> flat;
  for (auto& of_layer : physical) {
    of_layer.resize(most, -1);
    flat.insert(flat.end(), of_layer.begin(), of_layer.end());
  }
  return {
      to_array(std::move(flat), {physical.size(), most}),
      to_array(std::move(offsets), {physical.size(), static_cast<std::size_t>(placement.num_ranks()) + 1})};
}

bool same(const Placement& a, const Placement& b) {
  if (a.num_layers() != b.num_layers()) return false;
  for (int l = 0; l < a.num_layers(); ++l)
    if (a.layer(l) != b.layer(l)) return false;
  return true;
}

using Read =
    std::tuple<Placement, std::optional<double>, std::optional<double>, Provenance, std::optional<int>>;
using Layers = std::optional<std::vector<int>>;
using Path = std::filesystem::path;

std::optional<ModelLayers> model_of(const std::optional<Path>& path) {
  if (!path) return std::nullopt;
  return read_model_layers(path->string());
}

Read read(const Path& path, std::optional<int> num_ranks, std::optional<int> num_experts, Layers layers,
          const std::optional<Path>& model) {
  PlacementFile file = interruptible_read([&] {
    return read_placement_as(path.string(), {.layers = std::move(layers),
                                             .model = model_of(model),
                                             .num_ranks = num_ranks,
                                             .num_experts = num_experts});
  });
  return {std::move(file.placement), file.objective, file.bound, std::move(file.provenance),
          file.layer_updates_per_iter};
}

std::vector<std::string> write(const Placement& placement, const Path& path, const std::string& format,
                               std::optional<double> objective, std::optional<double> bound,
                               const Provenance& provenance, std::optional<int> read_layer_updates,
                               Layers layers, const std::optional<Path>& model,
                               std::optional<int> num_hidden_layers,
                               std::optional<int> layer_updates_per_iter) {
  return write_placement_as(parse_placement_format(format),
                            {placement, objective, bound, provenance, read_layer_updates},
                            {.layers = std::move(layers),
                             .num_hidden_layers = num_hidden_layers,
                             .model = model_of(model),
                             .layer_updates_per_iter = layer_updates_per_iter},
                            path.string());
}

// Adds the model's layers that the recordings lack, as command `place` does. Also returns notes that name
// them.
std::pair<Placement, std::vector<std::string>> of_all_layers(
    const Placement& placement, const std::vector<const RoutingProfile*>& recordings,
    const std::optional<Placement>& before, const std::optional<Path>& path) {
  std::vector<std::string> notes;
  std::vector<RoutingProfile> profiles;
  for (const RoutingProfile* recording : recordings) profiles.push_back(recording->without_transitions());
  Placement all = evenkeel::of_all_layers(placement, profiles, before, model_of(path), notes);
  return {std::move(all), std::move(notes)};
}

// Whether the file's format lacks the number of ranks.
bool needs_ranks(const Path& path) {
  const auto format = detect_placement_format(path.string());
  return format == PlacementFormat::sglang || format == PlacementFormat::vllm;
}

Layers layer_numbers(const Placement& placement) {
  if (!placement.layers().known()) return std::nullopt;
  return placement.layers().numbers();
}

int row_for(const Placement& placement, Layers loads_layers, int loads_rows, std::optional<int> layer,
            const std::string& loads) {
  return placement.row_for(
      {loads, LayerNumbers(std::move(loads_layers).value_or(std::vector<int>{})), loads_rows}, layer, "it");
}

Placement numbered(const Placement& placement, std::vector<int> layers) {
  return placement.numbered(LayerNumbers(std::move(layers)));
}

}  // namespace

void bind_placement(nb::module_& module) {
  const auto release = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Placement>(module, "Placement")
      .def_static("contiguous", &Placement::contiguous, nb::arg("num_layers"), nb::arg("num_experts"),
                  nb::arg("num_ranks"))
      .def_static("of_homes", &of_homes, nb::arg("homes"), nb::arg("num_ranks"), release)
      .def_static("read", &read, nb::arg("path"), nb::arg("num_ranks").none(), nb::arg("num_experts").none(),
                  nb::arg("layers").none(), nb::arg("model").none())
      .def_static("needs_ranks", &needs_ranks, nb::arg("path"))
      .def_static(
          "num_ranks_in",
          [](const Path& path) { return interruptible_read([&] { return num_ranks_in(path.string()); }); })
      .def("write", &write, nb::arg("path"), nb::arg("format"), nb::arg("objective").none(),
           nb::arg("bound").none(), nb::arg("provenance"), nb::arg("read_layer_updates").none(),
           nb::arg("layers").none(), nb::arg("model").none(), nb::arg("num_hidden_layers").none(),
           nb::arg("layer_updates_per_iter").none(), release)
      .def_prop_ro("num_layers", &Placement::num_layers)
      .def_prop_ro("num_experts", &Placement::num_experts)
      .def_prop_ro("layers", &layer_numbers)
      .def("numbered", &numbered, nb::arg("layers"))
      .def("of_all_layers", &of_all_layers, nb::arg("recordings"), nb::arg("before").none(),
           nb::arg("model").none(), release)
      .def("row_for", &row_for, nb::arg("loads_layers").none(), nb::arg("loads_rows"),
           nb::arg("layer").none(), nb::arg("loads"))
      .def_prop_ro("num_ranks", &Placement::num_ranks)
      .def_prop_ro("has_single_homes", &has_single_homes)
      .def("homes", &homes_of, nb::arg("layer"), nb::arg("expert"))
      .def("owners", &owners_of)
      .def("physical", &physical_of)
      .def("same", &same);
}

}  // namespace evenkeel::python
