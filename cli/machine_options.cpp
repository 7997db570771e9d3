#include "cli/machine_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/options.h"
#include "cli/output.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/io/topology_file.h"
#include "evenkeel/placement/evaluate/time_model.h"
#include "evenkeel/topology/devices.h"
#include "evenkeel/topology/presets.h"

namespace evenkeel::cli {

namespace {

constexpr const char* kTimeOptions[] = {"--tokens-per-step", "--cost",   "--device", "--tflops", "--link",
                                        "--expert-bytes",    "--horizon"};

}  // namespace

void add_machine(CLI::App& app, MachineOptions& machine) {
  add_whole(app, "--ranks", machine.ranks, 1, max_ranks, "Ranks that share the experts")->default_str("");
  add_whole(app, "--nodes", machine.nodes, 1, max_ranks, "Nodes that the ranks fill in order");
  app.add_option("--topology", machine.topology,
                 fmt::format("The machine: a file, or {}", topology_preset_names()))
      ->type_name("FILE|NAME");
}

bool is_machine_given(const CLI::App& app) {
  return is_given(app, "--topology") || is_given(app, "--ranks");
}

Topology topology_of(const CLI::App& app, const MachineOptions& machine) {
  if (!is_given(app, "--topology")) {
    if (machine.ranks == 0)
      throw InvalidArgument("--ranks", "is missing, and so is --topology",
                            "the number of ranks, or --topology instead");
    if (machine.ranks % machine.nodes != 0)
      throw InvalidArgument(
          "--nodes", fmt::format("{} ranks do not divide evenly over {} nodes", machine.ranks, machine.nodes),
          "a divisor of the ranks, or --topology with node_of_rank");
    return Topology::uniform(static_cast<int>(machine.nodes),
                             static_cast<int>(machine.ranks / machine.nodes));
  }
  refuse_if_given(app, "--nodes", "is already given by --topology");
  Topology topology = named_topology(machine.topology);
  if (is_given(app, "--ranks") && machine.ranks != topology.num_ranks())
    throw InvalidArgument(
        "--ranks",
        fmt::format("{}, but {} has {} ranks", machine.ranks, machine.topology, topology.num_ranks()),
        "to leave it out");
  return topology;
}

void add_rank_rates(CLI::App& app, TimeModel& options) {
  app.add_option("--cost", options.cost, "Time of matrix products: the file of evenkeel bench --calibrate")
      ->type_name("FILE");
  std::vector<std::string_view> names;
  for (const DevicePreset& each : device_presets()) names.push_back(each.name);
  app.add_option("--device", options.device,
                 fmt::format("Instead, assume half of a device's peak rates: {}", fmt::join(names, ", ")))
      ->type_name("NAME");
  add_text(app, "--expert-bytes", "SIZE",
           "Bytes of one expert's weights, if quantized (default: by the config's type)",
           [&options](const std::string& text) {
             options.expert_bytes = static_cast<double>(parse_bytes(text, "--expert-bytes"));
           });
}

void add_time_model(CLI::App& app, TimeModel& options) {
  add_whole(app, "--tokens-per-step", options.tokens_per_step, 1, kAnySize,
            "Tokens of a step over all ranks (default: --step-tokens)");
  add_rank_rates(app, options);
  add_number(app, "--tflops", options.tflops, 1e-6, 1e9,
             "Instead, the rate of matrix products, in 10^12 operations a second");
  add_number(app, "--link", options.link, 1e-6, 1e9,
             "GB/s into a rank, for moves (default: the topology's slowest, or the file's or device's)");
  add_whole(app, "--horizon", options.horizon, 1, kAnySize, "Steps that the placement will serve");
}

bool is_time_model_given(const CLI::App& app) {
  return std::ranges::any_of(kTimeOptions, [&](const char* option) { return is_given(app, option); });
}

void require_time_model(const CLI::App& app, const TimeModel& options, const std::string& model,
                        std::optional<std::int64_t> step_tokens) {
  if (is_given(app, "--cost"))
    for (const char* option : {"--tflops", "--device"})
      refuse_if_given(app, option, "is already given by --cost");
  if (is_given(app, "--device")) {
    device_preset(options.device, "--device");
    if (options.tflops && (options.link || is_given(app, "--topology")))
      refuse_if_given(app, "--device", "has no effect when --tflops is given with --link or --topology");
  }
  if (model.empty())
    for (const char* option : kTimeOptions)
      if (option != std::string_view("--horizon"))
        refuse_if_given(app, option, "needs --model, which says how large an expert is");
  if (!options.tokens_per_step && !step_tokens)
    for (const char* option : {"--cost", "--tflops"})
      refuse_if_given(app, option, "needs --tokens-per-step or --step-tokens");
}

StepModel read_step_model(const CLI::App& app, const TimeModel& options, const std::string& model,
                          std::optional<std::int64_t> step_tokens, const Topology& topology,
                          const std::string& recording, int num_experts) {
  std::optional<ExpertSizes> sizes;
  if (!model.empty())
    sizes = expert_sizes(read_model_description(model), options.expert_bytes, recording, num_experts);
  MachineRates rates{.tflops = options.tflops,
                     .link_gigabytes_per_s = options.link,
                     .topology_has_links = is_given(app, "--topology"),
                     .device = options.device};
  if (is_given(app, "--cost")) rates.cost = {options.cost, read_cost(options.cost)};
  StepModel step = step_model(rates, topology, sizes,
                              options.tokens_per_step ? options.tokens_per_step : step_tokens, "--device");
  for (const std::string& note : step.notes) say("note: {}", note);
  return step;
}

}  // namespace evenkeel::cli
