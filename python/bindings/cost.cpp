// _native.Machine: rates of a machine's products and links, from a cost file or from measured times.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "evenkeel/cost/fit.h"
#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/io/cost_file.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

struct MeasuredMachine {
  Machine machine = {};
  MeasuredOn on = {};
};

using Work = std::tuple<double, double, double>;          // elements, outputs, bytes
using ProductTimes = std::vector<Work>;                   // experts, rows of each, seconds
using Messages = std::vector<std::pair<double, double>>;  // bytes that leave a rank, seconds

constexpr double kMessagesOfChunk = 3;  // messages of a chunk: rows, weights, results

ExpertWork work_of(const Work& work) {
  return {std::get<0>(work), std::get<1>(work), std::get<2>(work)};
}

std::vector<double> numbers_of(const MeasuredMachine& of) {
  std::vector<double> numbers;
  for (const MachineNumber& number : machine_numbers()) numbers.push_back(of.machine.*number.value);
  return numbers;
}

std::vector<double> fitted_numbers(const Work& work, const ProductTimes& products, const Messages& messages) {
  std::vector<ProductTime> product_times;
  for (const auto& [experts, rows, seconds] : products)
    product_times.push_back({work_of(work), experts, rows, seconds});
  std::vector<ExchangeTime> exchange_times;
  for (const auto& [bytes, seconds] : messages) exchange_times.push_back({{.within = bytes}, seconds});
  // The fits leave numbers that start at 0 unchanged.
  const Machine start{.products_seconds = 1e-6, .link_seconds = 1e-6};
  Machine machine = fit_exchanges(fit_products(start, product_times), exchange_times);
  machine.nic_bytes_per_second = machine.link_bytes_per_second;
  machine.nic_seconds = machine.link_seconds;
  machine.chunk_seconds = kMessagesOfChunk * machine.link_seconds;
  return numbers_of({machine});
}

// Takes the slowest value of each number over all ranks.
MeasuredMachine slowest(const std::vector<std::vector<double>>& numbers_of_ranks, std::string cpu, int cores,
                        std::string layer) {
  MeasuredMachine of{
      .on = {std::move(cpu), cores, static_cast<int>(numbers_of_ranks.size()), std::move(layer)}};
  for (std::size_t i = 0; i < machine_numbers().size(); ++i) {
    const MachineNumber& number = machine_numbers()[i];
    std::vector<double> values;
    for (const std::vector<double>& numbers : numbers_of_ranks) values.push_back(numbers.at(i));
    const bool more_is_faster =
        std::string_view(number.name).ends_with("per_second") || number.value == &Machine::overlap;
    of.machine.*number.value = more_is_faster ? std::ranges::min(values) : std::ranges::max(values);
  }
  return of;
}

// Whether planner `level` plans differently with these links. A null machine is not measured yet; it shares
// no network interfaces.
bool differ(const Topology& topology, const MeasuredMachine* of) {
  return links_differ({topology, of != nullptr ? of->machine : Machine{}, {}});
}

std::string shown(const MeasuredMachine& of) {
  std::string text;
  for (const MachineNumber& number : machine_numbers())
    text += std::string(text.empty() ? "" : ", ") + number.name + "=" +
            nb::repr(nb::float_(of.machine.*number.value)).c_str();
  return "Machine(" + text + ")";
}

}  // namespace

void bind_cost(nb::module_& module) {
  nb::class_<MeasuredMachine> machine(module, "Machine");
  machine
      .def(
          "__init__",
          [](MeasuredMachine* self, const std::filesystem::path& path) {
            new (self) MeasuredMachine{read_cost(path.string())};
          },
          nb::arg("path"), "Reads a file of costs; `evenkeel bench --calibrate` and save() write such files.")
      .def_static("slowest", &slowest, nb::arg("numbers_of_ranks"), nb::arg("cpu"), nb::arg("cores"),
                  nb::arg("layer"))
      .def(
          "save",
          [](const MeasuredMachine& self, const std::filesystem::path& path) {
            write_cost(self.machine, self.on, path.string());
          },
          nb::arg("path"), "Writes a file of costs, which `--cost` of commands reads as well.")
      .def(
          "spill_costs",
          [](const MeasuredMachine& self, const Work& work, double row_bytes, bool backward) {
            const SpillCosts costs = evenkeel::spill_costs(self.machine, work_of(work), row_bytes, backward);
            return Work{costs.seconds_per_assignment, costs.seconds_per_transfer, costs.seconds_per_step};
          },
          nb::arg("work"), nb::arg("row_bytes"), nb::arg("backward"))
      .def_prop_ro("numbers", &numbers_of)
      .def("__repr__", &shown)
      .def(
          "__deepcopy__", [](const nb::object& self, const nb::handle&) { return self; }, nb::arg("memo"));
  for (const MachineNumber& number : machine_numbers())
    machine.def_prop_ro(number.name,
                        [value = number.value](const MeasuredMachine& self) { return self.machine.*value; });
  module.def(
      "require_links",
      [](const Topology& topology) {
        require_links({topology, {}, {}}, "topology");
      },
      nb::arg("topology"));
  module.def("links_differ", &differ, nb::arg("topology"), nb::arg("machine").none());
  module.def("fitted_numbers", &fitted_numbers, nb::arg("work"), nb::arg("products"), nb::arg("messages"));
}

}  // namespace evenkeel::python
