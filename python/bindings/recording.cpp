// _native.read_recording: reads routing from any supported file.
#include "evenkeel/routing/recording.h"

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

#include "evenkeel/base/error.h"
#include "evenkeel/io/read_recording.h"
#include "evenkeel/placement/traffic.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"
#include "python/bindings/interruptible.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

// `steps`: "" adds up the file's steps, "kept" keeps them, "if told" keeps them if they are consistent.
// `count`: what is counted in a trace: "nothing", "loads" or "transitions".
Recording read(const std::filesystem::path& path, std::optional<int> num_experts, std::string axes,
               std::string columns, std::optional<std::vector<int>> layers,
               const std::optional<std::filesystem::path>& model, const std::string& steps,
               std::optional<std::int64_t> step_tokens, const std::string& count) {
  using Count = ReadOptions::Count;
  using Steps = ReadOptions::Steps;
  ReadOptions how{.num_experts = num_experts,
                  .layers = std::move(layers),
                  .axes = std::move(axes),
                  .columns = std::move(columns),
                  .count = count == "nothing" ? Count::nothing
                           : count == "loads" ? Count::loads
                                              : Count::transitions,
                  .steps = steps == "kept"      ? Steps::kept
                           : steps == "if told" ? Steps::if_consistent
                                                : Steps::added_up,
                  .step_tokens = step_tokens};
  if (model) how.model = read_model_layers(model->string());
  return interruptible_read([&] { return read_recording(path.string(), how); });
}

// [L, P, E]
OutArray<double> sources(const Recording& recording, int num_ranks) {
  if (!recording.trace)
    throw ParseError(recording.name, "",
                     "has only counts of experts, not where tokens come from: give a trace");
  SourceCounts counted = interruptible_read([&] { return source_counts(*recording.trace, num_ranks); });
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  return to_array(std::move(counted.counts),
                  {size(counted.num_layers), size(counted.num_ranks), size(counted.num_experts)});
}

}  // namespace

void bind_recording(nb::module_& module) {
  nb::class_<Recording>(module, "Recording")
      .def(
          "__init__",
          [](Recording* self, std::string name, RoutingProfile profile, std::vector<std::string> notes) {
            new (self)
                Recording{.name = std::move(name), .profile = std::move(profile), .notes = std::move(notes)};
          },
          nb::arg("name"), nb::arg("profile"), nb::arg("notes"))
      .def_ro("name", &Recording::name)
      .def_ro("profile", &Recording::profile)
      .def_ro("steps", &Recording::steps)
      .def_ro("notes", &Recording::notes)
      .def_ro("axes", &Recording::axes)
      .def_prop_ro("is_trace", &Recording::is_trace)
      .def("sources", &sources, nb::arg("num_ranks"));
  module.def("read_recording", &read, nb::arg("path"), nb::arg("num_experts").none(), nb::arg("axes"),
             nb::arg("columns"), nb::arg("layers").none(), nb::arg("model").none(), nb::arg("steps"),
             nb::arg("step_tokens").none(), nb::arg("count"));
}

}  // namespace evenkeel::python
