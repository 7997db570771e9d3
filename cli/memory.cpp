// evenkeel memory: what one device holds while a model trains, what fits, and with how many chunks.
#include "evenkeel/report/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/memory_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_option.h"
#include "cli/serving.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/training_memory/names.h"
#ifdef EVENKEEL_WITH_LAYER
#include "evenkeel/layer/chunk_shape.h"
#endif

namespace evenkeel::cli {

namespace {

// Refuses options that would change no number.
void refuse_options_without_effect(const CLI::App& app, const MemoryArguments& options,
                                   const MemoryModel& memory) {
  if (options.static_bytes) {
    const char* const why = "affects only static memory, which --static-bytes gives";
    const auto named = [&](const char* term) { return std::ranges::count(options.with, term) > 0; };
    if (named("sharded-optimizer") || named("replicated")) refuse_if_given(app, "--with", why);
    if (options.static_bytes_given) refuse_if_given(app, "--bytes", why);
  }
  const std::int64_t foreign = memory.model().experts.count - memory.local_experts();
  if (memory.setup().extra.borrowed_experts > foreign)
    throw InvalidArgument("--borrowed-experts", fmt::format("{}", memory.setup().extra.borrowed_experts),
                          fmt::format("at most {}, the experts of other devices", foreign));
}

template <class Report>
void show(const Report& report, const MemoryArguments& options) {
  if (options.require_fit) require_fit(report);
  show_result(report, options.json, options.html);
}

// --gpus N: puts the layouts of N devices in order, the best first.
void search(const MemoryArguments& options, const MemoryModel& memory, const DeviceMemory& device,
            ReceivedRows received) {
  for (const std::string& degree : options.degrees)
    if (degree != "cp" && degree != "vp" && degree != "etp")
      throw InvalidArgument("--parallel", fmt::format("{} is chosen by --gpus", degree),
                            "with --gpus only cp, vp and etp");
  const std::vector<LayoutFit> layouts = rank_layouts(memory, *options.gpus, received, device);
  if (layouts.empty())
    throw InvalidArgument("--gpus",
                          fmt::format("{} devices have no layout with --parallel {}", *options.gpus,
                                      to_text(memory.setup().parallel)),
                          "a multiple of cp that holds whole copies of the experts");
  show(LayoutsReport{layouts, *options.gpus, device.available_bytes}, options);
}

ReceivedHistory read_history(const MemoryArguments& options, const MemoryModel& memory) {
  const auto file = open_array_file(options.counts);
  const std::string name = name_of_counts(*file);
  IntArray counts = read_integers(*file, name);
  ReceivedHistory history =
      received_history({options.counts, name, std::move(counts.shape), std::move(counts.values)}, memory);
  if (options.steps.empty()) return history;
  const std::vector<std::string> ends = split(options.steps, ':');
  if (ends.size() != 2)
    throw InvalidArgument("--steps", fmt::format("'{}'", options.steps),
                          "A:B, the first step and the one after the last");
  const std::int64_t begin = parse_whole("--steps", ends[0], 0, history.steps() - 1);
  return cut(history, begin, parse_whole("--steps", ends[1], begin + 1, history.steps()));
}

std::optional<std::int64_t> least_budget([[maybe_unused]] const MemoryModel& memory,
                                         [[maybe_unused]] int stage) {
#ifdef EVENKEEL_WITH_LAYER
  return least_layer_budget(memory, stage);
#else
  return std::nullopt;
#endif
}

MemoryModel memory_of(const CLI::App& app, const MemoryArguments& options) {
  MemorySetup setup = options.setup;
  setup.extra = counted_terms(app, options);
  ModelDescription description = read_model_description(options.model);
  if (!options.bytes_given && description.dtype_bytes > 0) setup.bytes.activation = description.dtype_bytes;
  setup.unfused_attention = options.attention == MemoryArguments::Attention::unfused;
  if (setup.unfused_attention && !setup.extra.kept_tensors)
    throw InvalidArgument("--attention", "unfused needs kept-tensors, which --paper leaves out",
                          "fused, or no --paper");
  if (!options.pipeline_layout.empty())
    setup.pieces = parse_pipeline("--pipeline-layout", options.pipeline_layout,
                                  std::ssize(description.prediction_layers));
  return MemoryModel(std::move(description), setup);
}

void run(const CLI::App& app, const MemoryArguments& options) {
  const DeviceMemory device{.available_bytes = available_bytes(app, options),
                            .static_bytes = options.static_bytes,
                            .bins = options.bins};
  if (options.cache_bytes > 0)
    throw InvalidArgument("--bytes", "cache applies only with --serve",
                          "activation, weight, gradient, optimizer");
  if (options.counts.empty()) refuse_if_given(app, "--steps", "has no meaning without --counts");
  if (options.gpus)
    for (const char* option : {"--static-bytes", "--counts", "--pipeline-layout"})
      refuse_if_given(app, option, "applies to one layout, but --gpus tries many");
  const MemoryModel memory = memory_of(app, options);
  const ReceivedRows received = options.even ? memory.even_received() : options.received;
  if (options.gpus) return search(options, memory, device, received);
  refuse_options_without_effect(app, options, memory);
  MemoryReport report = memory_report(memory, device, received);
  report.device_bytes = options.device_bytes;
  report.device_name = options.device;
  report.ratio_thousandths = options.ratio_thousandths;
  report.cross_entropy = cross_entropies[static_cast<std::size_t>(options.cross_entropy)];
  report.paper = options.paper;
  report.pipeline_layout = options.pipeline_layout;
  report.least_budget = least_budget(memory, report.fit.tightest);
  if (!options.counts.empty())
    report.history = choose_chunks(read_history(options, memory), memory, report.fit, device);
  show(report, options);
}

}  // namespace

Subcommand add_memory(CLI::App& command) {
  auto options = std::make_shared<MemoryArguments>();
  auto serving = std::make_shared<ServingArguments>();
  CLI::App* app =
      command.add_subcommand("memory", "What a device holds in training, or serving, and what fits");
  app->add_option("--model", options->model, "The model's config.json, or the folder of its checkpoint")
      ->required()
      ->type_name("PATH");
  add_setup(*app, *options);
  add_device(*app, *options);
  add_serving(*app, *serving);
  app->add_option(
         "--counts", options->counts,
         "Choose chunks for [steps, layers] rows or [steps, layers, experts] loads; with --serve, any "
         "recording of steps, judged by its worst")
      ->type_name("FILE");
  app->add_option("--steps", options->steps, "Only these steps of --counts")->type_name("A:B");
  app->add_flag("--require-fit", options->require_fit, "Exit 4 where it does not fit");
  add_html(*app, options->html);
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel memory --model config.json --parallel pp=4,ep=32 --seq 4096 --device-memory "
      "64GB\n  evenkeel memory --serve --model config.json --parallel ep=16 --bytes weight=1 --device h200");
  return {app, [app, options, serving] {
            require_page(options->html, {options->counts}, {options->model, options->model + "/config.json"});
            if (serving->serve) return serve(*app, *options, *serving);
            refuse_serving_options(*app);
            run(*app, *options);
          }};
}

}  // namespace evenkeel::cli
