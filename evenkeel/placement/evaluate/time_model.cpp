#include "evenkeel/placement/evaluate/time_model.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/model/parameters.h"
#include "evenkeel/topology/devices.h"

namespace evenkeel {

namespace {

struct Rates {
  std::optional<double> flops_per_second = {};
  std::optional<double> link_gigabytes_per_s = {};
  std::vector<std::string> notes = {};
};

Rates rates_of_cost(const MachineRates::Cost& cost, bool link_known) {
  return {
      cost.flops_per_second,
      cost.link_gigabytes_per_s,
      {fmt::format("{}: the time model takes flops_per_second{} from it; weight_bytes_per_second, overlap "
                   "and chunk_seconds have no part in that model",
                   cost.file, link_known ? "" : " and link_bytes_per_second")}};
}

Rates rates_of_device(const DevicePreset& device, bool tflops_known, bool link_known, bool one_node) {
  Rates rates{.flops_per_second = device.tflops() * 1e12};
  if (one_node) rates.link_gigabytes_per_s = device.link_gigabytes_per_s();
  std::string taken = tflops_known ? "" : fmt::format("{:g} TFLOP/s", device.tflops());
  if (!link_known && one_node)
    taken += fmt::format("{}{:g} GB/s", taken.empty() ? "" : " and ", device.link_gigabytes_per_s());
  if (!taken.empty())
    rates.notes.push_back(
        fmt::format("{} ({}): taken for {}; that {:g} % of the datasheet's peak is reached is an assumption",
                    device.name, device.summary, taken, 100 * assumed_share_of_peak));
  if (!link_known && !one_node)
    rates.notes.push_back(fmt::format(
        "{}: its link is that within a node; a link or a topology says what there is between nodes",
        device.name));
  return rates;
}

Rates rates_of(const MachineRates& said, const Topology& topology, const std::string& device_option) {
  const bool topology_known = said.topology_has_links && topology.num_ranks() > 1;
  const bool link_known = said.link_gigabytes_per_s.has_value() || topology_known;
  Rates rates;
  if (said.cost) rates = rates_of_cost(*said.cost, link_known);
  if (!said.device.empty())
    rates = rates_of_device(device_preset(said.device, device_option), said.tflops.has_value(), link_known,
                            topology.num_nodes() == 1);
  if (said.tflops) rates.flops_per_second = *said.tflops * 1e12;
  if (topology_known) rates.link_gigabytes_per_s = slowest_link(topology);
  if (said.link_gigabytes_per_s) rates.link_gigabytes_per_s = said.link_gigabytes_per_s;
  return rates;
}

}  // namespace

ExpertSizes expert_sizes(const ModelDescription& model, std::optional<double> bytes,
                         const std::string& recording, int num_experts) {
  if (model.experts.count != num_experts)
    throw InvalidArgument(
        "model",
        fmt::format("has {} experts a layer, but {} has {}", model.experts.count, recording, num_experts),
        "the config.json of the model that was recorded");
  const auto weights = static_cast<double>(expert_parameters(model));
  if (!bytes && model.dtype_bytes > 0) bytes = weights * static_cast<double>(model.dtype_bytes);
  return {.weights = weights, .bytes = bytes, .top_k = static_cast<int>(model.experts.top_k)};
}

StepModel step_model(const MachineRates& said, const Topology& topology,
                     const std::optional<ExpertSizes>& sizes, std::optional<double> tokens_per_step,
                     const std::string& device_option) {
  Rates rates = rates_of(said, topology, device_option);
  StepModel step{.link_gigabytes_per_s = rates.link_gigabytes_per_s,
                 .notes = std::move(rates.notes),
                 .has_model = sizes.has_value(),
                 .has_rate = rates.flops_per_second.has_value()};
  if (!sizes) return step;
  step.expert_bytes = sizes->bytes;
  step.top_k = sizes->top_k;
  if (tokens_per_step) step.assignments_per_step = *tokens_per_step * sizes->top_k;
  if (rates.flops_per_second) step.assignment_us = 2 * sizes->weights / *rates.flops_per_second * 1e6;
  return step;
}

}  // namespace evenkeel
