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
#include "evenkeel/placement/evaluate/time_model.h"
#include "evenkeel/topology/devices.h"

namespace evenkeel::cli {

namespace {

constexpr const char* kOptions[] = {"--tokens-per-step", "--cost",   "--device", "--tflops", "--link",
                                    "--expert-bytes",    "--horizon"};

MachineRates rates_of(const CLI::App& app, const TimeModel& options) {
  MachineRates rates{.topology_has_links = is_given(app, "--topology"), .device = options.device};
  if (is_given(app, "--tflops")) rates.tflops = options.tflops;
  if (is_given(app, "--link")) rates.link_gigabytes_per_s = options.link;
  if (is_given(app, "--cost")) {
    const CostModel cost = read_cost(options.cost);
    rates.cost = {options.cost, cost.flops_per_second, cost.link_bytes_per_second / 1e9};
  }
  return rates;
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
  std::optional<ExpertSizes> sizes;
  if (!model.empty()) {
    const ModelDescription description = read_model_description(model);
    if (description.experts.count != num_experts)
      throw InvalidArgument("--model",
                            fmt::format("has {} experts a layer, but {} has {}", description.experts.count,
                                        recording, num_experts),
                            "the config.json of the model that was recorded");
    sizes = {.weights = static_cast<double>(expert_parameters(description)),
             .top_k = static_cast<int>(description.experts.top_k)};
    if (options.expert_bytes > 0)
      sizes->bytes = static_cast<double>(options.expert_bytes);
    else if (description.dtype_bytes > 0)
      sizes->bytes = sizes->weights * static_cast<double>(description.dtype_bytes);
  }
  const std::int64_t tokens = options.tokens_per_step > 0 ? options.tokens_per_step : step_tokens;
  StepModel step =
      step_model(rates_of(app, options), topology, sizes,
                 tokens > 0 ? std::optional(static_cast<double>(tokens)) : std::nullopt, "--device");
  for (const std::string& note : step.notes) say("note: {}", note);
  return step;
}

}  // namespace evenkeel::cli
