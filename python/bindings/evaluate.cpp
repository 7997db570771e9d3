// _native.evaluate and _native.judge_placed: judge placements on recordings, and whether they pay, as the
// commands do.
#include "evenkeel/report/evaluate.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/placement/evaluate/hold_out.h"
#include "evenkeel/placement/evaluate/judge_placed.h"
#include "evenkeel/placement/evaluate/provenance.h"
#include "evenkeel/placement/evaluate/time_model.h"
#include "evenkeel/topology/devices.h"
#include "python/bindings/bind.h"
#include "python/bindings/interruptible.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

// Facts about the machine and a step, each named like the argument that states it.
struct TimeModel {
  std::optional<std::filesystem::path> model;
  std::optional<double> tokens_per_step;
  std::optional<double> tflops;
  std::optional<double> link;
  std::optional<double> expert_bytes;
  std::optional<std::filesystem::path> cost;
  std::optional<std::string> device;
};

StepModel step_model_of(const TimeModel& said, const Topology& topology, bool topology_has_links,
                        const std::string& recording, int num_experts) {
  MachineRates rates{.tflops = said.tflops,
                     .link_gigabytes_per_s = said.link,
                     .topology_has_links = topology_has_links,
                     .device = said.device.value_or("")};
  if (said.cost) rates.cost = {said.cost->string(), read_cost(said.cost->string())};
  std::optional<ExpertSizes> sizes;
  if (said.model)
    sizes =
        expert_sizes(read_model_description(said.model->string()), said.expert_bytes, recording, num_experts);
  return step_model(rates, topology, sizes, said.tokens_per_step);
}

// Returns the JSON that the command prints.
std::string evaluate_as_json(std::vector<Recording> recordings, std::vector<NamedPlacement> placements,
                             std::optional<NamedPlacement> from, const Topology& topology,
                             const StepModel& model, std::optional<double> horizon) {
  return to_json(
      evaluate(std::move(recordings), std::move(placements), std::move(from), topology, model, horizon));
}

std::optional<HeldOut> hold_out_interruptibly(const std::vector<Recording>& recordings,
                                              const Topology& topology, const PlaceOptions& options,
                                              double solve_ms) {
  return interruptible([&](std::stop_token stop) {
    PlaceOptions stoppable = options;
    stoppable.limits.stop = std::move(stop);
    return hold_out(recordings, PlacedFor::recordings, topology, stoppable, solve_ms);
  });
}

std::optional<std::string> json_or_nothing(const std::optional<Verdict>& verdict) {
  if (!verdict) return std::nullopt;
  return to_json(*verdict);
}

void bind_placed(nb::module_& module) {
  nb::class_<HeldOut>(module, "HeldOut")
      .def_prop_ro("max_over_mean_before", &HeldOut::mean_before)
      .def_prop_ro("max_over_mean_after", &HeldOut::mean_after)
      .def_prop_ro("blocks", [](const HeldOut& held_out) { return held_out.after.size(); })
      .def_prop_ro("folds", [](const HeldOut&) { return HeldOut::num_folds; })
      .def_ro("notes", &HeldOut::notes);
  nb::class_<NamedSteps>(module, "NamedSteps")
      .def_ro("name", &NamedSteps::name)
      .def_ro("before", &NamedSteps::before)
      .def_ro("after", &NamedSteps::after);
  nb::class_<JudgedPlacing>(module, "JudgedPlacing")
      .def_ro("steps", &JudgedPlacing::steps)
      .def_prop_ro("judged",
                   [](const JudgedPlacing& judged) {
                     std::vector<std::pair<PlacementQuality, PlacementQuality>> all;
                     for (const NamedQuality& each : judged.judged)
                       all.emplace_back(each.quality.before, each.quality.after);
                     return all;
                   })
      .def_prop_ro("verdict", [](const JudgedPlacing& judged) { return json_or_nothing(judged.verdict); })
      .def_prop_ro("judged_verdict",
                   [](const JudgedPlacing& judged) { return json_or_nothing(judged.judged_verdict); });
  module.def("hold_out", &hold_out_interruptibly, nb::arg("recordings"), nb::arg("topology"),
             nb::arg("options"), nb::arg("solve_ms"));
  module.def(
      "provenance_of",
      [](const std::vector<Recording>& recordings, const std::optional<HeldOut>& held_out) {
        return provenance_of(recordings, held_out);
      },
      nb::arg("recordings"), nb::arg("held_out").none());
  module.def("note_of_one_recording", &note_of_one_recording, nb::arg("num_own"), nb::arg("num_others"));
  module.def(
      "judge_placed",
      [](const NamedPlacement& before, const NamedPlacement& after, const std::vector<Recording>& own,
         const std::vector<Recording>& others, const std::optional<HeldOut>& held_out,
         const Topology& topology, const std::optional<StepModel>& model, std::optional<double> horizon) {
        return judge_placed(before, after, {own, others, held_out}, topology, model, horizon);
      },
      nb::arg("before"), nb::arg("after"), nb::arg("own"), nb::arg("others"), nb::arg("held_out").none(),
      nb::arg("topology"), nb::arg("model").none(), nb::arg("horizon").none(),
      nb::call_guard<nb::gil_scoped_release>());
}

void bind_time_model(nb::module_& module) {
  module.def(
      "require_device", [](const std::string& name) { device_preset(name); }, nb::arg("name"));
  nb::class_<StepModel>(module, "StepModel");
  nb::class_<TimeModel>(module, "TimeModel")
      .def(nb::init<std::optional<std::filesystem::path>, std::optional<double>, std::optional<double>,
                    std::optional<double>, std::optional<double>, std::optional<std::filesystem::path>,
                    std::optional<std::string>>(),
           nb::arg("model").none(), nb::arg("tokens_per_step").none(), nb::arg("tflops").none(),
           nb::arg("link").none(), nb::arg("expert_bytes").none(), nb::arg("cost").none(),
           nb::arg("device").none())
      .def("step_model", &step_model_of, nb::arg("topology"), nb::arg("topology_has_links"),
           nb::arg("recording"), nb::arg("num_experts"));
}

}  // namespace

void bind_evaluate(nb::module_& module) {
  nb::class_<StepSpread>(module, "StepSpread")
      .def_ro("median", &StepSpread::median)
      .def_ro("p95", &StepSpread::p95)
      .def_ro("worst", &StepSpread::worst);
  nb::class_<NamedPlacement>(module, "NamedPlacement")
      .def(
          "__init__",
          [](NamedPlacement* self, std::string name, std::optional<Placement> placement, std::string argument,
             const std::map<std::string, std::string>& provenance, const std::string& dispatch) {
            new (self) NamedPlacement{.name = std::move(name),
                                      .placement = std::move(placement),
                                      .argument = std::move(argument),
                                      .made_from = digests_in(provenance),
                                      .dispatch = parse_dispatch(dispatch)};
          },
          nb::arg("name"), nb::arg("placement").none(), nb::arg("argument"), nb::arg("provenance"),
          nb::arg("dispatch"));
  bind_time_model(module);
  module.def(
      "dispatch_for",
      [](const std::filesystem::path& path, const std::string& said) {
        return std::string(name_of(dispatch_for(detect_placement_format(path.string()), said)));
      },
      nb::arg("path"), nb::arg("said"));
  bind_placed(module);
  module.def("evaluate", &evaluate_as_json, nb::arg("recordings"), nb::arg("placements"),
             nb::arg("from_").none(), nb::arg("topology"), nb::arg("model"), nb::arg("horizon").none(),
             nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace evenkeel::python
