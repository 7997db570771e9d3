// _native.compare: replays recorded routing under every method and returns the command's results.
#include "evenkeel/report/compare.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/base/stop.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/topology/presets.h"
#include "python/bindings/bind.h"
#include "python/bindings/interruptible.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

using Path = std::filesystem::path;

// `topology_name`: the file or preset that the topology came from, or empty.
SimRequest sim_request(const Topology& topology, const std::string& topology_name,
                       const std::optional<Path>& model, std::optional<double> expert_bytes,
                       const std::optional<Path>& cost, const std::string& device, bool backward,
                       std::optional<std::int64_t> budget) {
  SimRequest request{.topology = topology,
                     .topology_has_links = !topology_name.empty(),
                     .expert_bytes = expert_bytes,
                     .device = device,
                     .backward = backward,
                     .budget = budget};
  if (model) request.model = read_model_description(model->string());
  if (cost) request.machine = read_cost(cost->string());
  // A topology preset also names its device, and so gives the device's rates.
  if (request.model && request.device.empty() && !request.machine)
    request.device = preset_device(topology_name);
  return request;
}

ComparedRecordings compare_interruptibly(const std::vector<Recording>& recordings,
                                         const std::vector<Recording>& place_from, const SimRequest& machine,
                                         const std::string& methods, std::optional<int> place_every,
                                         std::optional<std::int64_t> step_tokens, std::optional<int> top_k,
                                         std::int64_t capacity_factor, std::int64_t min_segment,
                                         std::int64_t imbalance_threshold) {
  CompareRequest request{.machine = machine,
                         .cut = {.tokens = step_tokens, .top_k = top_k},
                         .methods = methods,
                         .place_every = place_every};
  request.machine.planner.capacity_factor_thousandths = capacity_factor;
  request.machine.planner.min_segment = min_segment;
  request.machine.planner.imbalance_threshold_thousandths = imbalance_threshold;
  return interruptible_read(
      [&] { return compare_recordings(recordings, place_from, request, [](int, int) { stop_if_asked(); }); });
}

}  // namespace

void bind_compare(nb::module_& module) {
  nb::class_<SimRequest>(module, "SimRequest")
      .def_static("of_files", &sim_request, nb::arg("topology"), nb::arg("topology_name"),
                  nb::arg("model").none(), nb::arg("expert_bytes").none(), nb::arg("cost").none(),
                  nb::arg("device"), nb::arg("backward"), nb::arg("budget").none());
  nb::class_<ComparedRecordings>(module, "ComparedRecordings")
      .def("json", [](const ComparedRecordings& compared) { return to_json(compared); })
      .def("text", [](const ComparedRecordings& compared) { return to_text(compared); })
      .def("csv", [](const ComparedRecordings& compared) { return to_csv(compared); })
      .def(
          "write_html",
          [](const ComparedRecordings& compared, const Path& path, const std::string& version) {
            write_file(path.string(), to_html(compared, {"evenkeel.compare(...)", "evenkeel " + version}));
          },
          nb::arg("path"), nb::arg("version"))
      .def(
          "write_timeline",
          [](const ComparedRecordings& compared, const Path& path) {
            write_file(path.string(), to_chrome_trace(timeline_of(compared)));
          },
          nb::arg("path"));
  module.def("compare", &compare_interruptibly, nb::arg("recordings"), nb::arg("place_from"),
             nb::arg("machine"), nb::arg("methods"), nb::arg("place_every").none(),
             nb::arg("step_tokens").none(), nb::arg("top_k").none(), nb::arg("capacity_factor_thousandths"),
             nb::arg("min_segment"), nb::arg("imbalance_threshold_thousandths"));
}

}  // namespace evenkeel::python
