// _native.place: makes a placement from a profile, with its solver's figures.
#include "evenkeel/placement/place.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/io/topology_file.h"
#include "evenkeel/placement/copy_choice.h"
#include "evenkeel/placement/problem.h"
#include "evenkeel/placement/traffic.h"
#include "evenkeel/placement/whole_groups.h"
#include "evenkeel/topology/presets.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"
#include "python/bindings/interruptible.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

Topology uniform(int num_ranks, int num_nodes) {
  if (num_ranks % num_nodes != 0)
    throw InvalidArgument("nodes",
                          std::to_string(num_ranks) + " ranks do not divide evenly over " +
                              std::to_string(num_nodes) + " nodes",
                          "a divisor of ranks, or a topology with the node of each rank");
  return Topology::uniform(num_nodes, num_ranks / num_nodes);
}

SourceCounts sources_of(const InArray<double, 3>& counts) {
  const auto values = values_of(counts);
  return {.num_layers = static_cast<int>(counts.shape(0)),
          .num_ranks = static_cast<int>(counts.shape(1)),
          .num_experts = static_cast<int>(counts.shape(2)),
          .counts = {values.begin(), values.end()}};
}

PlaceResult place_interruptibly(const std::vector<const RoutingProfile*>& recordings,
                                const Topology& topology, const PlaceOptions& options) {
  return interruptible([&](std::stop_token stop) {
    PlaceOptions stoppable = options;
    stoppable.limits.stop = std::move(stop);
    if (recordings.size() == 1) return place(*recordings.front(), topology, stoppable);
    std::vector<RoutingProfile> all;
    for (const RoutingProfile* recording : recordings) all.push_back(*recording);
    return place(all, topology, stoppable);
  });
}

void bind_quality(nb::module_& module) {
  using Quality = PlacementQuality;
  nb::class_<Quality>(module, "PlacementQuality")
      .def("max_over_mean",
           [](const Quality& quality) {
             return to_array(quality.max_over_mean, {quality.max_over_mean.size()});
           })
      .def_ro("max_over_mean_mean", &Quality::max_over_mean_mean)
      .def_ro("max_over_mean_worst", &Quality::max_over_mean_worst)
      .def_ro("mean_over_max_mean", &Quality::mean_over_max_mean)
      .def_ro("relative_excess_mean", &Quality::relative_excess_mean)
      .def_ro("traffic_known", &Quality::traffic_known)
      .def_ro("crossing", &Quality::crossing)
      .def_ro("crossing_within_nodes", &Quality::crossing_within)
      .def_ro("crossing_between_nodes", &Quality::crossing_across)
      .def_ro("total", &Quality::total)
      .def_ro("worst_pair", &Quality::worst_pair)
      .def("traffic", [](const Quality& quality, std::size_t num_ranks) {
        return to_array(quality.traffic, {num_ranks, num_ranks});
      });
}

// Adds setters, since Python gives each option's enumerator as a bool or a word.
void bind_options(nb::module_& module) {
  nb::class_<PlaceOptions>(module, "PlaceOptions")
      .def(nb::init<>())
      .def("set_solver",
           [](PlaceOptions& options, bool exact) {
             options.solver = exact ? PlaceOptions::Solver::exact : PlaceOptions::Solver::fast;
           })
      .def("set_objective",
           [](PlaceOptions& options, bool joint) {
             options.objective = joint ? PlaceOptions::Objective::joint : PlaceOptions::Objective::two_stage;
           })
      .def("set_sizes", [](PlaceOptions& options,
                           bool free) { options.sizes = free ? ClusterSizes::free : ClusterSizes::equal; })
      .def("set_across",
           [](PlaceOptions& options, bool sum) {
             options.across = sum ? PlaceOptions::Across::sum : PlaceOptions::Across::worst;
           })
      .def("set_traffic",
           [](PlaceOptions& options, bool dispatch_combine) {
             options.traffic =
                 dispatch_combine ? TrafficModel::dispatch_combine : TrafficModel::layer_to_layer;
           })
      .def("set_pairs",
           [](PlaceOptions& options, bool total) {
             options.pairs = total ? PairObjective::total : PairObjective::worst_pair;
           })
      .def("set_cost",
           [](PlaceOptions& options, double assignment_us, double assignment_bytes) {
             options.cost = {.assignment_us = assignment_us, .assignment_bytes = assignment_bytes};
           })
      .def("set_limits",
           [](PlaceOptions& options, double time_limit_s, double relative_gap) {
             options.limits.time_limit_s = time_limit_s;
             options.limits.relative_gap = relative_gap;
           })
      .def("set_sources", [](PlaceOptions& options,
                             const InArray<double, 3>& counts) { options.sources = sources_of(counts); })
      .def("start_from",
           [](PlaceOptions& options, const Placement& from, int max_moves) {
             options.from = from;
             options.max_moves = max_moves;
           })
      .def("set_dispatch",
           [](PlaceOptions& options, const std::string& name) { options.dispatch = parse_dispatch(name); })
      .def_rw("redundant_experts", &PlaceOptions::redundant_experts)
      .def_rw("num_groups", &PlaceOptions::num_groups)
      .def("keep_groups_of_model",
           [](PlaceOptions& options, const std::filesystem::path& model, int num_experts, int num_ranks) {
             return keep_groups_whole(read_model_groups(model.string(), num_experts), num_experts, num_ranks,
                                      options);
           });
}

}  // namespace

void bind_place(nb::module_& module) {
  nb::class_<Topology>(module, "Topology")
      .def_static("uniform", &uniform, nb::arg("num_ranks"), nb::arg("num_nodes"))
      .def_static("preset", &preset_topology, nb::arg("name"))
      .def_static("named", [](const std::filesystem::path& name) { return named_topology(name.string()); })
      .def_prop_ro("num_ranks", &Topology::num_ranks)
      .def("__repr__", [](const Topology& self) { return "Topology(" + to_json(self) + ")"; })
      .def(
          "__deepcopy__", [](const nb::object& self, const nb::handle&) { return self; }, nb::arg("memo"));
  bind_quality(module);
  bind_options(module);
  nb::class_<PlaceResult>(module, "PlaceResult")
      .def_ro("placement", &PlaceResult::placement)
      .def_ro("objective", &PlaceResult::objective)
      .def_ro("bound", &PlaceResult::bound)
      .def_ro("bound_of", &PlaceResult::bound_of)
      .def_ro("proven_optimal", &PlaceResult::proven_optimal)
      .def_prop_ro("is_exact",
                   [](const PlaceResult& result) { return result.solver == PlaceOptions::Solver::exact; })
      .def_ro("solve_ms", &PlaceResult::solve_ms)
      .def_ro("before", &PlaceResult::before)
      .def_ro("after", &PlaceResult::after)
      .def_prop_ro("per_recording",
                   [](const PlaceResult& result) {
                     std::vector<std::pair<PlacementQuality, PlacementQuality>> all;
                     for (const RecordingQuality& each : result.per_recording)
                       all.emplace_back(each.before, each.after);
                     return all;
                   })
      .def_ro("notes", &PlaceResult::notes);
  nb::class_<CopyChoice::Tried>(module, "TriedCopies")
      .def_ro("redundant_experts", &CopyChoice::Tried::redundant_experts)
      .def_ro("max_over_mean", &CopyChoice::Tried::max_over_mean)
      .def_ro("slots", &CopyChoice::Tried::slots);
  module.def(
      "choose_copies",
      [](const std::vector<const RoutingProfile*>& recordings, const Topology& topology,
         const PlaceOptions& options) {
        std::vector<RoutingProfile> all;
        for (const RoutingProfile* recording : recordings) all.push_back(*recording);
        return interruptible([&](std::stop_token stop) {
          PlaceOptions stoppable = options;
          stoppable.limits.stop = std::move(stop);
          CopyChoice choice = choose_copies(all, topology, stoppable);
          return std::tuple(std::move(choice.placed), std::move(choice.tried), choice.redundant_experts);
        });
      },
      nb::arg("recordings"), nb::arg("topology"), nb::arg("options"));
  module.def("place", &place_interruptibly, nb::arg("recordings"), nb::arg("topology"), nb::arg("options"));
  module.def("has_exact_solver", &has_exact_solver);
}

}  // namespace evenkeel::python
