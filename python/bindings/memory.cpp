// _native.memory: a device's memory for a model, whose tensors Python may list.
#include "evenkeel/report/memory.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/topology/devices.h"
#include "evenkeel/training_memory/names.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

using Numbers = std::map<std::string, std::int64_t>;

// The arguments of evenkeel.memory(), with the same names.
struct MemoryOptions {
  Numbers parallel, bytes;
  std::int64_t sequence = 4096, micro_batch = 1;
  std::string recompute, pipeline_layout, cross_entropy, with, without, device;
  bool unfused = false, transformers = false, even = false;
  std::optional<std::int64_t> received;
  std::int64_t device_bytes = 0, ratio_thousandths = 900;
  std::vector<std::int64_t> bins;
};

template <class Struct, std::size_t N>
void set_named(const char* argument, const Numbers& given, Struct& into,
               const std::array<std::pair<std::string_view, std::int64_t Struct::*>, N>& known) {
  for (const auto& [name, number] : given) {
    const auto found =
        std::ranges::find(known, name, &std::pair<std::string_view, std::int64_t Struct::*>::first);
    if (found == known.end()) {
      std::string names;
      for (const auto& each : known) names += (names.empty() ? "" : ", ") + std::string(each.first);
      throw InvalidArgument(argument, "has '" + name + "'", names);
    }
    into.*found->second = number;
  }
}

constexpr std::array<std::pair<std::string_view, std::int64_t BytesPerNumber::*>, 4> kinds_of_bytes = {
    {{"activation", &BytesPerNumber::activation},
     {"weight", &BytesPerNumber::weight},
     {"gradient", &BytesPerNumber::gradient},
     {"optimizer", &BytesPerNumber::optimizer}}};

MemorySetup setup_of(const MemoryOptions& options, const ModelDescription& model) {
  MemorySetup setup{.sequence = options.sequence, .micro_batch = options.micro_batch};
  setup.parallel.data = 0;
  set_named("parallel", options.parallel, setup.parallel, degree_names);
  if (setup.parallel.data == 0) setup.parallel.data = setup.parallel.least_data();
  if (model.dtype_bytes > 0) setup.bytes.activation = setup.bytes.weight = model.dtype_bytes;
  // With f32 weights the optimizer needs no master copy.
  if (setup.bytes.weight == 4) setup.bytes.optimizer = 8;
  set_named("bytes", options.bytes, setup.bytes, kinds_of_bytes);
  setup.weights_as_stored = !options.bytes.contains("weight");
  parse_recompute("recompute", options.recompute, setup);
  const auto entropy = std::ranges::find(cross_entropies, options.cross_entropy);
  const auto terms = [](const char* argument, const std::string& text) {
    return text.empty() ? std::vector<std::string>() : parse_terms(argument, text);
  };
  setup.extra = counted_terms({}, terms("with_terms", options.with), terms("without", options.without), false,
                              static_cast<CrossEntropy>(entropy - cross_entropies.begin()));
  setup.extra.first_axis_alone = options.transformers;
  setup.unfused_attention = options.unfused;
  if (!options.pipeline_layout.empty())
    setup.pieces =
        parse_pipeline("pipeline_layout", options.pipeline_layout, std::ssize(model.prediction_layers));
  return setup;
}

// Without `tensors`, `config` is a file name; with them it is the text of a config.
ModelDescription read_model(const std::string& config,
                            const std::optional<std::vector<NamedTensor>>& tensors) {
  if (!tensors) return read_model_description(config);
  const auto bytes = std::as_bytes(std::span(config));
  return read_model_description(ByteSource({bytes.begin(), bytes.end()}, "the model's config"), *tensors);
}

std::string memory(const std::string& config, const std::optional<std::vector<NamedTensor>>& tensors,
                   const MemoryOptions& options) {
  ModelDescription model = read_model(config, tensors);
  const MemorySetup setup = setup_of(options, model);
  const MemoryModel memory(std::move(model), setup);
  const DeviceMemory device{.available_bytes = share_of(options.device_bytes, options.ratio_thousandths),
                            .bins = options.bins};
  const ReceivedRows received = options.even ? memory.even_received() : options.received;
  MemoryReport report = memory_report(memory, device, received);
  report.device_bytes = options.device_bytes;
  report.ratio_thousandths = options.ratio_thousandths;
  report.cross_entropy = options.cross_entropy;
  report.device_name = options.device;
  report.pipeline_layout = options.pipeline_layout;
  return to_json(report);
}

}  // namespace

void bind_memory(nb::module_& module) {
  nb::class_<NamedTensor>(module, "NamedTensor")
      .def("__init__", [](NamedTensor* made, std::string name, std::vector<std::int64_t> shape,
                          std::optional<int> axis, bool by_name, bool trained, std::int64_t number_bytes) {
        new (made) NamedTensor{std::move(name), std::move(shape),
                               by_name ? NamedTensor::by_name : axis.value_or(uncut), trained, number_bytes};
      });
  nb::class_<MemoryOptions>(module, "MemoryOptions")
      .def(nb::init<>())
      .def_rw("parallel", &MemoryOptions::parallel)
      .def_rw("bytes", &MemoryOptions::bytes)
      .def_rw("sequence", &MemoryOptions::sequence)
      .def_rw("micro_batch", &MemoryOptions::micro_batch)
      .def_rw("recompute", &MemoryOptions::recompute)
      .def_rw("pipeline_layout", &MemoryOptions::pipeline_layout)
      .def_rw("cross_entropy", &MemoryOptions::cross_entropy)
      .def_rw("unfused", &MemoryOptions::unfused)
      .def_rw("transformers", &MemoryOptions::transformers)
      .def_rw("even", &MemoryOptions::even)
      .def_rw("with_terms", &MemoryOptions::with)
      .def_rw("without", &MemoryOptions::without)
      .def_rw("device", &MemoryOptions::device)
      .def_rw("received", &MemoryOptions::received, nb::arg().none())
      .def_rw("device_bytes", &MemoryOptions::device_bytes)
      .def_rw("ratio_thousandths", &MemoryOptions::ratio_thousandths)
      .def_rw("bins", &MemoryOptions::bins);
  module.def("memory", &memory, nb::arg("config"), nb::arg("tensors").none(), nb::arg("options"));
  module.def("device_bytes",
             [](const std::string& name) { return device_preset(name, "device").memory_bytes(); });
}

}  // namespace evenkeel::python
