#include "evenkeel/placement/evaluate/time_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/topology/devices.h"

namespace evenkeel {

namespace {

constexpr double kMostBytes = 1e15;  // for one expert, the same limit as in require_links()

// A machine, with flags for the numbers that are known.
struct KnownMachine {
  Machine machine = {};
  bool has_products = false;
  std::optional<double> link_gigabytes_per_s = {};
  std::vector<std::string> notes = {};
};

// GB/s of the link that limits: with several nodes, the slower of link and network card.
double link_of(const Machine& machine, bool one_node) {
  return 1e-9 * (one_node ? machine.link_bytes_per_second
                          : std::min(machine.link_bytes_per_second, machine.nic_bytes_per_second));
}

KnownMachine of_cost(const MachineRates::Cost& cost, bool link_known, bool one_node) {
  return {.machine = cost.machine,
          .has_products = true,
          .link_gigabytes_per_s = link_of(cost.machine, one_node),
          .notes = {fmt::format("{}: the time model takes the rates of products{} from it; "
                                "weight_bytes_per_second, overlap, latencies and overheads are not used",
                                cost.file, link_known ? "" : " and links")}};
}

KnownMachine of_device(const DevicePreset& device, bool tflops_known, bool link_known, bool one_node) {
  KnownMachine known{.machine = device_machine(device), .has_products = true};
  if (one_node) known.link_gigabytes_per_s = link_of(known.machine, one_node);
  std::string taken = tflops_known ? "" : fmt::format("{:g} TFLOP/s", device.tflops());
  if (!link_known && one_node)
    taken += fmt::format("{}{:g} GB/s", taken.empty() ? "" : " and ", device.link_gigabytes_per_s());
  if (!taken.empty())
    known.notes.push_back(
        fmt::format("{} ({}): used for {}; this assumes that {:g} % of the datasheet's peak is reached",
                    device.name, device.summary, taken, 100 * assumed_share_of_peak));
  if (!link_known && !one_node)
    known.notes.push_back(fmt::format(
        "{}: its link speed is for links within a node; give a link or a topology for links between nodes",
        device.name));
  return known;
}

KnownMachine known_machine(const MachineRates& said, const Topology& topology,
                           const std::string& device_option) {
  const bool topology_known = said.topology_has_links && topology.num_ranks() > 1;
  const bool link_known = said.link_gigabytes_per_s.has_value() || topology_known;
  const bool one_node = topology.num_nodes() == 1;
  KnownMachine known;
  if (said.cost) known = of_cost(*said.cost, link_known, one_node);
  if (!said.device.empty())
    known =
        of_device(device_preset(said.device, device_option), said.tflops.has_value(), link_known, one_node);
  if (said.tflops) {
    known.machine.flops_per_second = *said.tflops * 1e12;
    known.machine.inner_half = 0;  // tflops is a measured rate, whatever the shape
    known.has_products = true;
  }
  if (topology_known) known.link_gigabytes_per_s = slowest_link(topology);
  if (said.link_gigabytes_per_s) known.link_gigabytes_per_s = said.link_gigabytes_per_s;
  return known;
}

}  // namespace

ExpertSizes expert_sizes(const ModelDescription& model, std::optional<double> bytes,
                         const std::string& recording, int num_experts) {
  if (model.experts.count != num_experts)
    throw InvalidArgument(
        "model",
        fmt::format("has {} experts a layer, but {} has {}", model.experts.count, recording, num_experts),
        "the config.json of the model that was recorded");
  const ExpertWork work{
      .elements = static_cast<double>(model.expert_parameters()),
      .outputs = static_cast<double>((model.experts.gated ? 2 : 1) * model.experts.intermediate +
                                     model.expert_row_width())};
  const char* const said_by = bytes ? "expert_bytes" : "model";
  if (!bytes && model.dtype_bytes > 0) bytes = work.elements * static_cast<double>(model.dtype_bytes);
  if (bytes && !(*bytes >= 1 && *bytes <= kMostBytes))
    throw InvalidArgument(said_by, fmt::format("an expert has {:g} bytes", *bytes), "1..1e15 bytes");
  return {.work = work, .bytes = bytes, .top_k = static_cast<int>(model.experts.top_k)};
}

StepLinks step_links(const Topology& topology, const Machine& machine, const ModelDescription& model,
                     std::optional<double> bytes, const std::string& recording, int num_experts,
                     bool backward, const char* topology_option) {
  if (model.dtype_bytes == 0)
    throw InvalidArgument("model", "does not say the type of its numbers", "a config.json with torch_dtype");
  const ExpertSizes sizes = expert_sizes(model, bytes, recording, num_experts);
  StepLinks step{.topology = topology,
                 .machine = machine,
                 .expert = sizes.work,
                 .row_bytes = static_cast<double>(model.expert_row_width() * model.dtype_bytes),
                 .backward = backward};
  step.expert.bytes = *sizes.bytes;
  require_links(step, topology_option);
  return step;
}

StepModel step_model(const MachineRates& said, const Topology& topology,
                     const std::optional<ExpertSizes>& sizes, std::optional<double> tokens_per_step,
                     const std::string& device_option) {
  KnownMachine known = known_machine(said, topology, device_option);
  StepModel step{.link_gigabytes_per_s = known.link_gigabytes_per_s,
                 .notes = std::move(known.notes),
                 .has_model = sizes.has_value(),
                 .has_rate = known.has_products};
  if (!sizes) return step;
  step.expert_bytes = sizes->bytes;
  step.top_k = sizes->top_k;
  if (tokens_per_step) step.assignments_per_step = *tokens_per_step * sizes->top_k;
  if (known.has_products) step.assignment_us = row_seconds(known.machine, sizes->work) * 1e6;
  return step;
}

}  // namespace evenkeel
