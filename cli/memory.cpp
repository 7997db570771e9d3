// evenkeel memory: what one device holds while a model trains, what fits, and with how many chunks.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/memory_budget.h"
#include "cli/memory_history.h"
#include "cli/memory_layouts.h"
#include "cli/memory_options.h"
#include "cli/memory_report.h"
#include "cli/options.h"
#include "cli/subcommand.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/model_config.h"

namespace evenkeel::cli {

namespace {

DeviceMemory device_of(const CLI::App& app, const MemoryArguments& options) {
  DeviceMemory device;
  device.available_bytes =
      static_cast<std::int64_t>(static_cast<long double>(options.device_bytes) *
                                static_cast<long double>(options.ratio_thousandths) / 1000);
  device.bins = options.bins;
  if (is_given(app, "--static-bytes")) device.static_bytes = options.static_bytes;
  return device;
}

// Options that would change no number.
void refuse_what_says_nothing(const CLI::App& app, const MemoryArguments& options,
                              const MemoryModel& memory) {
  if (is_given(app, "--static-bytes")) {
    const char* const why = "is of static memory, which --static-bytes gives";
    const auto named = [&](const char* term) { return std::ranges::count(options.with, term) > 0; };
    if (named("sharded-optimizer") || named("replicated")) refuse_if_given(app, "--with", why);
    if (options.static_bytes_given) refuse_if_given(app, "--bytes", why);
  }
  const std::int64_t foreign = memory.model().experts.count - memory.local_experts();
  if (memory.setup().extra.borrowed_experts > foreign)
    throw InvalidArgument("--borrowed-experts", fmt::format("{}", memory.setup().extra.borrowed_experts),
                          fmt::format("at most {}, the experts of other devices", foreign));
}

// --gpus: layouts of so many devices.
void search(const CLI::App& app, const MemoryArguments& options, const MemoryModel& memory,
            const DeviceMemory& device, ReceivedRows received) {
  for (const char* option : {"--static-bytes", "--counts"})
    refuse_if_given(app, option, "is of one layout, and --gpus looks at many");
  for (const std::string& degree : options.degrees)
    if (degree != "cp" && degree != "vp" && degree != "etp")
      throw InvalidArgument("--parallel", fmt::format("{} is what --gpus looks for", degree),
                            "cp, vp and etp beside --gpus");
  const std::vector<LayoutFit> layouts = rank_layouts(memory, options.gpus, received, device);
  if (layouts.empty())
    throw InvalidArgument("--gpus",
                          fmt::format("{} devices have no layout with --parallel {}", options.gpus,
                                      degrees_text(memory.setup().parallel)),
                          "a multiple of cp, with whole copies of the experts");
  const LayoutsReport report{
      .layouts = layouts, .devices = options.gpus, .available_bytes = device.available_bytes};
  if (options.require_fit) require_fit(report);
  options.json ? print_json(report) : print_table(report);
}

void run(const CLI::App& app, const MemoryArguments& options) {
  if (options.ratio_thousandths > 1000)
    throw InvalidArgument("--available-ratio", format_thousandths(options.ratio_thousandths),
                          "a share of the device, above 0 and at most 1");
  if (is_given(app, "--device")) refuse_if_given(app, "--device-memory", "is what --device says");
  if (!is_given(app, "--counts")) refuse_if_given(app, "--steps", "has no meaning without --counts");
  MemorySetup setup = options.setup;
  std::vector<std::string> terms = set_terms(app, options, setup.extra);
  ModelDescription description = read_model_description(options.model);
  if (!options.bytes_given && description.dtype_bytes > 0) setup.bytes.activation = description.dtype_bytes;
  const MemoryModel memory(std::move(description), setup);
  const DeviceMemory device = device_of(app, options);
  ReceivedRows received = options.received;
  if (options.even) received = memory.even_received();
  if (is_given(app, "--gpus")) return search(app, options, memory, device, received);

  refuse_what_says_nothing(app, options, memory);
  MemoryReport report{.memory = memory,
                      .device = device,
                      .given_received = received,
                      .device_bytes = options.device_bytes,
                      .device_name = options.device,
                      .ratio_thousandths = options.ratio_thousandths,
                      .cross_entropy = cross_entropy_text(options),
                      .terms = std::move(terms),
                      .paper = options.paper,
                      .fit = fit(memory, received, device),
                      .longest_sequence = longest_sequence(memory, received, device),
                      .advice = {},
                      .least_budget = {},
                      .history = {}};
  report.least_budget = least_layer_budget(memory, report.fit.tightest);
  if (!report.fit.fits) report.advice = what_would_fit(memory, received, device);
  if (is_given(app, "--counts")) {
    ReceivedHistory history = read_history(options.counts, memory);
    if (is_given(app, "--steps")) {
      history = cut(std::move(history), options.steps);
      report.first_step = parse_whole("--steps", split(options.steps, ':')[0], 0, kAnySize);
    }
    report.history = choose_chunks(history, memory, report.fit, device);
  }
  if (options.require_fit) require_fit(report);
  options.json ? print_json(report) : print_table(report);
}

}  // namespace

Subcommand add_memory(CLI::App& command) {
  auto options = std::make_shared<MemoryArguments>();
  CLI::App* app =
      command.add_subcommand("memory", "What a device holds in training, what fits, and in how many chunks");
  app->add_option("--model", options->model, "The model's config.json")->required()->type_name("FILE");
  add_setup(*app, *options);
  add_device(*app, *options);
  app->add_option("--counts", options->counts,
                  "Chunks for each of [steps, layers] rows, or [steps, layers, experts] loads")
      ->type_name("FILE");
  app->add_option("--steps", options->steps, "Of --counts: these")->type_name("A:B");
  app->add_flag("--require-fit", options->require_fit, "Exit 4 where it does not fit");
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel memory --model config.json --parallel pp=4,ep=32 --seq 4096 --device-memory "
      "64GB");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
