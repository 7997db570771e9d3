// _native.plan: one step plan, as arrays and numbers.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "evenkeel/balance/ep.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/balance/transfer_bound.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/placement/evaluate/time_model.h"
#include "evenkeel/routing/imbalance.h"
#include "evenkeel/topology/devices.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

struct PlanResult {
  StepPlan plan;
  Imbalance even;
  std::int64_t transfer_lower_bound = 0;
  double plan_us = 0;
  std::optional<PredictedSteps> on_links;
};

using Numbers = std::tuple<int, std::int64_t, std::int64_t>;

Counts counts_of(const InArray<std::int64_t, 2>& counts) {
  Counts all(static_cast<int>(counts.shape(0)), static_cast<int>(counts.shape(1)));
  std::ranges::copy(values_of(counts), all.rows().begin());
  all.sum_loads();
  return all;
}

// Exactly one of `cost`, a file, and `device`, a preset's name, is given.
StepLinks links_of_model(const Topology& topology, const std::filesystem::path& model,
                         std::optional<double> expert_bytes, const std::optional<std::filesystem::path>& cost,
                         const std::optional<std::string>& device, int num_experts, bool backward) {
  const Machine machine = cost ? read_cost(cost->string()) : device_machine(device_preset(device.value()));
  return step_links(topology, machine, read_model_description(model.string()), expert_bytes, "loads",
                    num_experts, backward);
}

PlanResult make_plan(const Counts& counts, const Placement* placement, int layer, PlannerOptions options,
                     const std::vector<std::int64_t>& base_load, const StepLinks* links) {
  if (links != nullptr && options.kind == PlannerOptions::Kind::level) options.links = *links;
  const LayerPlacement homes = placement != nullptr
                                   ? placement->layer(layer)
                                   : LayerPlacement::contiguous(counts.num_experts(), counts.num_ranks());
  const auto planner = make_planner(options);
  PlanResult result;
  const auto start = std::chrono::steady_clock::now();
  planner->plan(counts, homes, result.plan, base_load);
  result.plan_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  result.even = imbalance(result.plan.rank_loads());
  std::vector<std::int64_t> rank_loads(result.plan.rank_loads().begin(), result.plan.rank_loads().end());
  for (std::size_t r = 0; r < base_load.size(); ++r) rank_loads[r] += base_load[r];
  result.transfer_lower_bound = transfer_lower_bound(counts, homes, std::ranges::max(rank_loads), base_load);
  if (links == nullptr) return result;
  StepPlan plain;
  Ep::keep_home(counts, homes, plain);
  result.on_links = predict_steps(*links, options, counts, homes, result.plan, plain, base_load);
  return result;
}

std::vector<std::vector<Numbers>> segments_of(const PlanResult& result) {
  std::vector<std::vector<Numbers>> segments;
  for (ExpertId expert : indices<ExpertId>(result.plan.num_experts())) {
    auto& of_expert = segments.emplace_back();
    for (const Segment& s : result.plan.segments(expert))
      of_expert.emplace_back(s.rank.value(), s.begin, s.end);
  }
  return segments;
}

std::vector<std::tuple<int, int, int>> transfers_of(const PlanResult& result) {
  std::vector<std::tuple<int, int, int>> transfers;
  for (const Transfer& t : result.plan.transfers())
    transfers.emplace_back(t.expert.value(), t.from.value(), t.to.value());
  return transfers;
}

OutArray<std::int64_t> rank_loads_of(const PlanResult& result) {
  return to_array(result.plan.rank_loads(), {static_cast<std::size_t>(result.plan.num_ranks())});
}

template <auto step>
std::optional<PredictedStep> predicted(const PlanResult& result) {
  if (!result.on_links) return std::nullopt;
  return (*result.on_links).*step;
}

}  // namespace

void bind_plan(nb::module_& module) {
  nb::class_<Counts>(module, "Counts")
      .def_static("of_loads", [](const InArray<std::int64_t, 1>& loads,
                                 int num_ranks) { return Counts::of_loads(values_of(loads), num_ranks); })
      .def_static("of_sources", &counts_of);
  nb::class_<PredictedStep>(module, "PredictedStep")
      .def_ro("seconds", &PredictedStep::seconds)
      .def_ro("weight_bytes_across", &PredictedStep::weight_bytes_across)
      .def_ro("row_bytes_across", &PredictedStep::row_bytes_across);
  nb::class_<PlanResult>(module, "PlanResult")
      .def_prop_ro("num_experts", [](const PlanResult& result) { return result.plan.num_experts(); })
      .def_prop_ro("num_ranks", [](const PlanResult& result) { return result.plan.num_ranks(); })
      .def_prop_ro("spilled", [](const PlanResult& result) { return result.plan.spilled(); })
      .def_prop_ro("max_over_mean", [](const PlanResult& result) { return result.even.max_over_mean; })
      .def_prop_ro("mean_over_max", [](const PlanResult& result) { return result.even.mean_over_max; })
      .def_prop_ro("relative_excess", [](const PlanResult& result) { return result.even.relative_excess; })
      .def_ro("transfer_lower_bound", &PlanResult::transfer_lower_bound)
      .def_ro("plan_us", &PlanResult::plan_us)
      .def_prop_ro("predicted", &predicted<&PredictedSteps::planned>)
      .def_prop_ro("predicted_under_ep", &predicted<&PredictedSteps::plain>)
      .def_prop_ro("predicted_without_links", &predicted<&PredictedSteps::without_links>)
      .def("segments", &segments_of)
      .def("transfers", &transfers_of)
      .def("rank_loads", &rank_loads_of);
  nb::class_<StepLinks>(module, "StepLinks")
      .def_static("of_model", &links_of_model, nb::arg("topology"), nb::arg("model"),
                  nb::arg("expert_bytes").none(), nb::arg("cost").none(), nb::arg("device").none(),
                  nb::arg("num_experts"), nb::arg("backward"));
  module.def(
      "plan",
      [](const Counts& counts, const Placement* placement, int layer, const std::string& planner,
         std::int64_t capacity_factor, std::int64_t min_segment, std::int64_t imbalance_threshold,
         const std::vector<std::int64_t>& base_load, std::optional<std::int64_t> borrow_slots,
         const StepLinks* links) {
        return make_plan(counts, placement, layer,
                         {.kind = parse_planner(planner),
                          .capacity_factor_thousandths = capacity_factor,
                          .min_segment = min_segment,
                          .imbalance_threshold_thousandths = imbalance_threshold,
                          .borrow_slots = borrow_slots.value_or(kUnlimitedSlots)},
                         base_load, links);
      },
      nb::arg("counts"), nb::arg("placement").none(), nb::arg("layer"), nb::arg("planner"),
      nb::arg("capacity_factor_thousandths"), nb::arg("min_segment"),
      nb::arg("imbalance_threshold_thousandths"), nb::arg("base_load"), nb::arg("borrow_slots").none(),
      nb::arg("links").none(), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace evenkeel::python
