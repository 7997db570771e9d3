// _native.judge and what follows from it: a placement on a recording, the move there, and whether it pays.
#include "evenkeel/placement/evaluate/evaluate.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
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
#include <vector>

#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/io/routing_file.h"
#include "evenkeel/model/parameters.h"
#include "evenkeel/topology/devices.h"
#include "python/bindings/bind.h"
#include "python/bindings/interruptible.h"

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

std::vector<RoutingProfile> read_steps(const std::filesystem::path& path, std::optional<int> num_experts,
                                       std::optional<std::int64_t> step_tokens, const std::string& bare,
                                       std::optional<std::vector<int>> layers,
                                       const std::optional<std::filesystem::path>& model) {
  RoutingOptions how{.num_experts = num_experts,
                     .layers = std::move(layers),
                     .bare = parse_bare("as_", bare),
                     .transitions = false,
                     .keep_steps = true};
  if (model) how.model = read_model_layers(model->string());
  return interruptible_read([&] {
    RoutingFile file = open_routing(path.string(), how);
    std::vector<RoutingProfile> steps = steps_of(file, step_tokens);
    for (RoutingProfile& step : steps)
      if (file.layers().known()) step.set_layers(file.layers());
    return steps;
  });
}

// Bytes of an expert's weights, its multiply-adds for a token, k, and how many experts a layer has.
std::tuple<double, double, int, int> sizes_of_model(const std::filesystem::path& config) {
  const bool folder = std::filesystem::is_directory(config);
  const ModelDescription model = read_model_description((folder ? config / "config.json" : config).string());
  const auto weights = static_cast<double>(expert_parameters(model));
  return {weights * static_cast<double>(model.dtype_bytes), weights, static_cast<int>(model.experts.top_k),
          static_cast<int>(model.experts.count)};
}

// Operations a second of products, GB/s from rank to rank.
std::pair<double, double> rates_of_cost(const std::filesystem::path& file) {
  const CostModel cost = read_cost(file.string());
  return {cost.flops_per_second, cost.link_bytes_per_second / 1e9};
}

// The same of a device, by what is assumed of its peaks.
std::pair<double, double> rates_of_device(const std::string& name) {
  const DevicePreset& device = device_preset(name);
  return {device.tflops() * 1e12, device.link_gigabytes_per_s()};
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
      .def_ro("break_even_steps", &Verdict::break_even_steps);
}

}  // namespace

void bind_evaluate(nb::module_& module) {
  nb::class_<StepModel>(module, "StepModel")
      .def(nb::init<>())
      .def_rw("assignment_us", &StepModel::assignment_us)
      .def_rw("assignments_per_step", &StepModel::assignments_per_step)
      .def_rw("expert_bytes", &StepModel::expert_bytes)
      .def_rw("link_gigabytes_per_s", &StepModel::link_gigabytes_per_s);
  nb::class_<StepSpread>(module, "StepSpread")
      .def_ro("mean", &StepSpread::mean)
      .def_ro("median", &StepSpread::median)
      .def_ro("p95", &StepSpread::p95)
      .def_ro("worst", &StepSpread::worst);
  nb::class_<RecordingJudgement>(module, "RecordingJudgement")
      .def_ro("quality", &RecordingJudgement::quality)
      .def_ro("steps", &RecordingJudgement::steps);
  bind_verdict(module);
  module.def("homes_for", &homes_for, nb::arg("recording"), nb::arg("name"), nb::arg("topology"),
             nb::arg("placement").none(), nb::arg("placement_name"), nb::arg("argument"));
  module.def(
      "judge",
      [](const RoutingProfile& recording, const std::vector<RoutingProfile>& steps, const Topology& topology,
         const Placement& placement) { return judge(recording, steps, topology, placement); },
      nb::arg("recording"), nb::arg("steps"), nb::arg("topology"), nb::arg("placement"));
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
  module.def("read_steps", &read_steps, nb::arg("path"), nb::arg("num_experts").none(),
             nb::arg("step_tokens").none(), nb::arg("bare"), nb::arg("layers").none(),
             nb::arg("model").none());
  module.def("rates_of_cost", &rates_of_cost, nb::arg("file"));
  module.def("rates_of_device", &rates_of_device, nb::arg("name"));
  module.def("slowest_link", &slowest_link, nb::arg("topology"));
  module.def("sizes_of_model", &sizes_of_model, nb::arg("config"));
}

}  // namespace evenkeel::python
