// _native.rebalance_experts: EPLB's call on arrays.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <cstddef>
#include <tuple>

#include "evenkeel/placement/replicas/eplb.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

using Ids = OutArray<std::int64_t>;

std::tuple<Ids, Ids, Ids> rebalance(const InArray<double, 2>& weight, int num_replicas, int num_groups,
                                    int num_nodes, int num_gpus) {
  EplbMaps maps;
  {
    const nb::gil_scoped_release released;
    maps = rebalance_experts({.num_layers = static_cast<int>(weight.shape(0)),
                              .num_experts = static_cast<int>(weight.shape(1)),
                              .weight = values_of(weight),
                              .num_replicas = num_replicas,
                              .num_groups = num_groups,
                              .num_nodes = num_nodes,
                              .num_gpus = num_gpus});
  }
  const std::size_t layers = weight.shape(0);
  const std::size_t experts = weight.shape(1);
  return {to_array(std::move(maps.physical_to_logical), {layers, static_cast<std::size_t>(num_replicas)}),
          to_array(std::move(maps.logical_to_physical),
                   {layers, experts, static_cast<std::size_t>(maps.max_count)}),
          to_array(std::move(maps.expert_count), {layers, experts})};
}

}  // namespace

void bind_rebalance(nb::module_& module) {
  module.def("rebalance_experts", &rebalance, nb::arg("weight"), nb::arg("num_replicas"),
             nb::arg("num_groups"), nb::arg("num_nodes"), nb::arg("num_gpus"));
}

}  // namespace evenkeel::python
