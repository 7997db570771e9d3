// _native.rebalance_experts: EPLB's call on arrays. _native.rebalance_live: starts from a server's current
// map.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <tuple>

#include "evenkeel/placement/incremental/live.h"
#include "evenkeel/placement/replicas/eplb.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

using Ids = OutArray<std::int64_t>;

// `weight` is [layers, experts], or [windows, layers, experts].
template <class Array>
EplbProblem problem_of(const Array& weight, int num_replicas, int num_groups, int num_nodes, int num_gpus) {
  return {.num_layers = static_cast<int>(weight.shape(weight.ndim() - 2)),
          .num_experts = static_cast<int>(weight.shape(weight.ndim() - 1)),
          .weight = values_of(weight),
          .num_replicas = num_replicas,
          .num_groups = num_groups,
          .num_nodes = num_nodes,
          .num_gpus = num_gpus};
}

std::tuple<Ids, Ids, Ids> rebalance(const InArray<double, 2>& weight, int num_replicas, int num_groups,
                                    int num_nodes, int num_gpus) {
  EplbMaps maps;
  {
    const nb::gil_scoped_release released;
    maps = rebalance_experts(problem_of(weight, num_replicas, num_groups, num_nodes, num_gpus));
  }
  const std::size_t layers = weight.shape(0);
  const std::size_t experts = weight.shape(1);
  return {to_array(std::move(maps.physical_to_logical), {layers, static_cast<std::size_t>(num_replicas)}),
          to_array(std::move(maps.logical_to_physical),
                   {layers, experts, static_cast<std::size_t>(maps.max_count)}),
          to_array(std::move(maps.expert_count), {layers, experts})};
}

LiveResult rebalance_from(const InArray<double, 3>& weight, const InArray<std::int64_t, 2>& live,
                          int num_replicas, int num_groups, int num_nodes, int num_ranks, int max_moves,
                          double least_gain) {
  const nb::gil_scoped_release released;
  return rebalance_live({.num_windows = static_cast<int>(weight.shape(0)),
                         .of_each = problem_of(weight, num_replicas, num_groups, num_nodes, num_ranks),
                         .live = values_of(live),
                         .max_moves = max_moves,
                         .least_gain = least_gain});
}

void bind_live(nb::module_& module) {
  nb::class_<LiveResult>(module, "LiveResult")
      .def(
          "physical_to_logical",
          [](const LiveResult& result) {
            const std::size_t layers = result.max_over_mean.size();
            return to_array(result.physical_to_logical, {layers, result.physical_to_logical.size() / layers});
          })
      .def_ro("moves", &LiveResult::moves)
      .def_ro("max_over_mean_before", &LiveResult::max_over_mean_before)
      .def_ro("max_over_mean", &LiveResult::max_over_mean)
      .def_ro("reachable", &LiveResult::reachable)
      .def_ro("placed_in_full", &LiveResult::placed_in_full);
  module.def("rebalance_live", &rebalance_from, nb::arg("weight"), nb::arg("live"), nb::arg("num_replicas"),
             nb::arg("num_groups"), nb::arg("num_nodes"), nb::arg("num_ranks"), nb::arg("max_moves"),
             nb::arg("least_gain"));
}

}  // namespace

void bind_rebalance(nb::module_& module) {
  bind_live(module);
  module.def("rebalance_experts", &rebalance, nb::arg("weight"), nb::arg("num_replicas"),
             nb::arg("num_groups"), nb::arg("num_nodes"), nb::arg("num_gpus"));
}

}  // namespace evenkeel::python
