#include "cli/time_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/options.h"
#include "cli/output.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/model/parameters.h"
#include "evenkeel/topology/devices.h"

namespace evenkeel::cli {

namespace {

constexpr const char* kOptions[] = {"--tokens-per-step", "--cost",   "--device", "--tflops", "--link",
                                    "--expert-bytes",    "--horizon"};

// A machine's rates, as far as anybody says them.
struct Rates {
  std::optional<double> flops_per_second = {};
  std::optional<double> link_gigabytes_per_s = {};
};

bool has_topology_link(const CLI::App& app, const Topology& topology) {
  return is_given(app, "--topology") && topology.num_ranks() > 1;
}

Rates rates_of_cost(const std::string& file, bool link_known) {
  const CostModel cost = read_cost(file);
  say("note: {}: the time model takes flops_per_second{} from it; weight_bytes_per_second, overlap and "
      "chunk_seconds have no part in that model",
      file, link_known ? "" : " and link_bytes_per_second");
  return {cost.flops_per_second, cost.link_bytes_per_second / 1e9};
}

Rates rates_of_device(const std::string& name, bool tflops_known, bool link_known, bool one_node) {
  const DevicePreset& device = device_preset(name, "--device");
  Rates rates{.flops_per_second = device.tflops() * 1e12};
  if (one_node) rates.link_gigabytes_per_s = device.link_gigabytes_per_s();
  std::string taken = tflops_known ? "" : fmt::format("{:g} TFLOP/s", device.tflops());
  if (!link_known && one_node)
    taken += fmt::format("{}{:g} GB/s", taken.empty() ? "" : " and ", device.link_gigabytes_per_s());
  if (!taken.empty())
    say("note: {} ({}): taken for {}; that {:g} % of the datasheet's peak is reached is an assumption", name,
        device.summary, taken, 100 * assumed_share_of_peak);
  if (!link_known && !one_node)
    say("note: {}: its link is that within a node; --link or --topology says what there is between nodes",
        name);
  return rates;
}

// What an option says goes before the topology, and that before a file of costs or a device.
Rates rates_of(const CLI::App& app, const TimeModel& options, const Topology& topology) {
  const bool link_known = is_given(app, "--link") || has_topology_link(app, topology);
  Rates rates;
  if (is_given(app, "--cost")) rates = rates_of_cost(options.cost, link_known);
  if (is_given(app, "--device"))
    rates = rates_of_device(options.device, is_given(app, "--tflops"), link_known, topology.num_nodes() == 1);
  if (is_given(app, "--tflops")) rates.flops_per_second = options.tflops * 1e12;
  if (has_topology_link(app, topology)) rates.link_gigabytes_per_s = slowest_link(topology);
  if (is_given(app, "--link")) rates.link_gigabytes_per_s = options.link;
  return rates;
}

// A folder has its model's.
std::string config_of(const std::string& model) {
  std::error_code unknown;  // what cannot be looked at, its reader names
  return std::filesystem::is_directory(model, unknown) ? model + "/config.json" : model;
}

}  // namespace

std::optional<double> TimeModel::steps_served() const {
  return horizon > 0 ? std::optional(static_cast<double>(horizon)) : std::nullopt;
}

void add_time_model(CLI::App& app, TimeModel& options) {
  add_whole(app, "--tokens-per-step", options.tokens_per_step, 1, kAnySize,
            "Tokens of a step over all ranks; else what --step-tokens says")
      ->default_str("");
  app.add_option("--cost", options.cost, "What products take, as evenkeel bench --calibrate measures it")
      ->type_name("FILE");
  std::string names;
  for (const DevicePreset& each : device_presets())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
  app.add_option("--device", options.device, "Instead: half of a device's peaks: " + names)
      ->type_name("NAME");
  add_number(app, "--tflops", options.tflops, 1e-6, 1e9,
             "Instead: 10^12 operations a second that products reach")
      ->default_str("");
  add_number(app, "--link", options.link, 1e-6, 1e9,
             "GB/s into a rank, for the move; else the topology's slowest, else the file's or device's")
      ->default_str("");
  add_size(app, "--expert-bytes", options.expert_bytes,
           "One expert's weights, where they are quantized; else by the config's type")
      ->default_str("");
  add_whole(app, "--horizon", options.horizon, 1, kAnySize, "Steps that the placement will serve")
      ->default_str("");
}

bool is_time_model_given(const CLI::App& app) {
  return std::ranges::any_of(kOptions, [&](const char* option) { return is_given(app, option); });
}

void require_time_model(const CLI::App& app, const TimeModel& options, const std::string& model,
                        std::int64_t step_tokens) {
  if (is_given(app, "--cost"))
    for (const char* option : {"--tflops", "--device"}) refuse_if_given(app, option, "is what --cost says");
  if (is_given(app, "--device")) {
    device_preset(options.device, "--device");
    if (is_given(app, "--tflops") && (is_given(app, "--link") || is_given(app, "--topology")))
      refuse_if_given(app, "--device",
                      "has nothing left to say beside --tflops and a link of --link or --topology");
  }
  if (model.empty())
    for (const char* option : kOptions)
      if (option != std::string_view("--horizon"))
        refuse_if_given(app, option, "needs --model, which says how large an expert is");
  if (options.tokens_per_step == 0 && step_tokens == 0)
    for (const char* option : {"--cost", "--tflops"})
      refuse_if_given(app, option, "needs --tokens-per-step, or --step-tokens");
}

StepModel read_step_model(const CLI::App& app, const TimeModel& options, const std::string& model,
                          std::int64_t step_tokens, const Topology& topology, const std::string& recording,
                          int num_experts) {
  const Rates rates = rates_of(app, options, topology);
  StepModel step{.link_gigabytes_per_s = rates.link_gigabytes_per_s};
  if (model.empty()) return step;
  const ModelDescription description = read_model_description(config_of(model));
  if (description.experts.count != num_experts)
    throw InvalidArgument("--model",
                          fmt::format("has {} experts a layer, but {} has {}", description.experts.count,
                                      recording, num_experts),
                          "the config.json of the model that was recorded");
  const auto weights = static_cast<double>(expert_parameters(description));
  if (options.expert_bytes > 0)
    step.expert_bytes = static_cast<double>(options.expert_bytes);
  else if (description.dtype_bytes > 0)
    step.expert_bytes = weights * static_cast<double>(description.dtype_bytes);
  const std::int64_t tokens = options.tokens_per_step > 0 ? options.tokens_per_step : step_tokens;
  if (tokens > 0)
    step.assignments_per_step = static_cast<double>(tokens) * static_cast<double>(description.experts.top_k);
  if (rates.flops_per_second) step.assignment_us = 2 * weights / *rates.flops_per_second * 1e6;
  return step;
}

}  // namespace evenkeel::cli
