// _native.RoutingProfile: loads and transitions, from arrays or from any file that holds or makes them.
#include "evenkeel/routing/profile.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/routing/imbalance.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

std::size_t layers(const RoutingProfile& profile) {
  return static_cast<std::size_t>(profile.num_layers());
}
std::size_t experts(const RoutingProfile& profile) {
  return static_cast<std::size_t>(profile.num_experts());
}

std::optional<std::vector<int>> layer_numbers(const RoutingProfile& profile) {
  if (!profile.layers().known()) return std::nullopt;
  return profile.layers().numbers();
}

RoutingProfile of_arrays(const InArray<std::int64_t, 2>& loads,
                         const std::optional<InArray<std::int64_t, 3>>& transitions) {
  const auto all_loads = values_of(loads);
  std::span<const std::int64_t> all_transitions;
  if (transitions) {
    const auto [l, e] = std::pair(loads.shape(0), loads.shape(1));
    if (transitions->shape(0) + 1 != l || transitions->shape(1) != e || transitions->shape(2) != e)
      throw InvalidArgument("transitions", "their shape does not fit that of loads",
                            "[L - 1, E, E] for loads [L, E]");
    all_transitions = values_of(*transitions);
  }
  return RoutingProfile(static_cast<int>(loads.shape(0)), static_cast<int>(loads.shape(1)),
                        {all_loads.begin(), all_loads.end()},
                        {all_transitions.begin(), all_transitions.end()});
}

std::optional<OutArray<std::int64_t>> transitions_of(const RoutingProfile& profile) {
  if (!profile.has_transitions()) return std::nullopt;
  return to_array(profile.transitions(), {layers(profile) - 1, experts(profile), experts(profile)});
}

void write(const RoutingProfile& profile, const std::filesystem::path& path, const std::string& format) {
  for (FileFormat known : {FileFormat::safetensors, FileFormat::npz, FileFormat::json})
    if (format == name_of(known)) return write_profile(profile, path.string(), known);
  throw InvalidArgument("format", "'" + format + "' is no format of a profile", "safetensors, npz, json");
}

using ThreeWays = std::tuple<OutArray<double>, OutArray<double>, OutArray<double>>;

// Imbalance of the experts' loads, layer by layer.
ThreeWays imbalance_of(const RoutingProfile& profile) {
  std::vector<double> max_over_mean, mean_over_max, relative_excess;
  for (LayerId layer : indices<LayerId>(profile.num_layers())) {
    const Imbalance of_layer = imbalance(profile.loads(layer));
    max_over_mean.push_back(of_layer.max_over_mean);
    mean_over_max.push_back(of_layer.mean_over_max);
    relative_excess.push_back(of_layer.relative_excess);
  }
  const std::size_t n = layers(profile);
  return {to_array(std::move(max_over_mean), {n}), to_array(std::move(mean_over_max), {n}),
          to_array(std::move(relative_excess), {n})};
}

}  // namespace

void bind_profile(nb::module_& module) {
  const auto release = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<RoutingProfile>(module, "RoutingProfile")
      .def_static("of_arrays", &of_arrays, nb::arg("loads"), nb::arg("transitions").none())
      .def("write", &write, nb::arg("path"), nb::arg("format"), release)
      .def_prop_ro("num_layers", &RoutingProfile::num_layers)
      .def_prop_ro("num_experts", &RoutingProfile::num_experts)
      .def_prop_ro("layers", &layer_numbers)
      .def("set_layers", [](RoutingProfile& profile,
                            std::vector<int> layers) { profile.set_layers(LayerNumbers(std::move(layers))); })
      .def("loads",
           [](const RoutingProfile& profile) {
             return to_array(profile.loads(), {layers(profile), experts(profile)});
           })
      .def_prop_ro("has_transitions", &RoutingProfile::has_transitions)
      .def("transitions", &transitions_of)
      .def("imbalance", &imbalance_of)
      .def(
          "plus",
          [](const RoutingProfile& profile, const RoutingProfile& other) {
            RoutingProfile sum = profile;
            sum.add(other);
            return sum;
          },
          nb::arg("other"), release)
      .def("same", [](const RoutingProfile& a, const RoutingProfile& b) {
        return std::ranges::equal(a.loads(), b.loads()) && a.num_layers() == b.num_layers() &&
               a.has_transitions() == b.has_transitions() &&
               std::ranges::equal(a.transitions(), b.transitions());
      });
}

}  // namespace evenkeel::python
