// _native.judge and what follows from it: a placement on a recording, the move there, and whether it pays.
#include "evenkeel/placement/evaluate/evaluate.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/placement/evaluate/time_model.h"
#include "evenkeel/topology/devices.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

// The homes of the recording's layers; without a placement contiguous ones.
Placement homes_for(const RoutingProfile& recording, const std::string& name, const Topology& topology,
                    const std::optional<Placement>& placement, const std::string& placement_name,
                    const std::string& argument) {
  if (!placement)
    return Placement::contiguous(recording.num_layers(), recording.num_experts(), topology.num_ranks());
  return placement->paired_with({name, recording.layers(), recording.num_layers()}, placement_name, argument);
}

RecordingJudgement judge_on(const RoutingProfile& recording, const std::string& name,
                            const std::vector<RoutingProfile>& steps, const Topology& topology,
                            const std::optional<Placement>& placement, const std::string& placement_name,
                            const std::string& argument, const std::string& dispatch) {
  const NamedPlacement judged{.name = placement_name,
                              .placement = placement,
                              .argument = argument,
                              .dispatch = parse_dispatch(dispatch)};
  return judged.judged_on({.name = name, .profile = recording, .steps = steps}, topology);
}

// Facts about the machine and a step, each by the name of the argument that states it.
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
  if (said.cost) {
    const CostModel cost = read_cost(said.cost->string());
    rates.cost = {said.cost->string(), cost.flops_per_second, cost.link_bytes_per_second / 1e9};
  }
  std::optional<ExpertSizes> sizes;
  if (said.model)
    sizes =
        expert_sizes(read_model_description(said.model->string()), said.expert_bytes, recording, num_experts);
  return step_model(rates, topology, sizes, said.tokens_per_step);
}

void bind_verdict(nb::module_& module) {
  nb::class_<Move>(module, "Move")
      .def_ro("experts", &Move::experts)
      .def_ro("most_on_rank", &Move::most_on_rank)
      .def_ro("bytes", &Move::bytes)
      .def_ro("ms", &Move::ms);
  nb::class_<Verdict>(module, "Verdict")
      .def_prop_ro("answer", [](const Verdict& verdict) { return name_of(verdict.answer); })
      .def_ro("sentence", &Verdict::sentence)
      .def_ro("max_over_mean_before", &Verdict::max_over_mean_before)
      .def_ro("max_over_mean_after", &Verdict::max_over_mean_after)
      .def_ro("better_on", &Verdict::better_on)
      .def_ro("recordings", &Verdict::recordings)
      .def_ro("step_ms_before", &Verdict::step_ms_before)
      .def_ro("step_ms_after", &Verdict::step_ms_after)
      .def_ro("break_even_steps", &Verdict::break_even_steps)
      .def_ro("notes", &Verdict::notes);
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
      .def_ro("mean", &StepSpread::mean)
      .def_ro("median", &StepSpread::median)
      .def_ro("p95", &StepSpread::p95)
      .def_ro("worst", &StepSpread::worst);
  nb::class_<RecordingJudgement>(module, "RecordingJudgement")
      .def_ro("quality", &RecordingJudgement::quality)
      .def_ro("steps", &RecordingJudgement::steps);
  bind_verdict(module);
  bind_time_model(module);
  module.def("homes_for", &homes_for, nb::arg("recording"), nb::arg("name"), nb::arg("topology"),
             nb::arg("placement").none(), nb::arg("placement_name"), nb::arg("argument"));
  module.def("judge", &judge_on, nb::arg("recording"), nb::arg("name"), nb::arg("steps"), nb::arg("topology"),
             nb::arg("placement").none(), nb::arg("placement_name"), nb::arg("argument"),
             nb::arg("dispatch"));
  module.def(
      "dispatch_for",
      [](const std::filesystem::path& path, const std::string& said) {
        return std::string(name_of(dispatch_for(detect_placement_format(path.string()), said)));
      },
      nb::arg("path"), nb::arg("said"));
  module.def("move_between", &move_between, nb::arg("before"), nb::arg("after"), nb::arg("model"));
  module.def(
      "verdict_of",
      [](const std::vector<RecordingJudgement>& before, const std::vector<RecordingJudgement>& after,
         const Move& move, const StepModel& model, int num_layers, int num_ranks,
         std::optional<double> horizon) {
        return verdict_of(before, after, move, model, num_layers, num_ranks, horizon);
      },
      nb::arg("before"), nb::arg("after"), nb::arg("move"), nb::arg("model"), nb::arg("num_layers"),
      nb::arg("num_ranks"), nb::arg("horizon").none());
}

}  // namespace evenkeel::python
