#include "cli/serving.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/file_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_option.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/report/serving.h"

namespace evenkeel::cli {

namespace {

constexpr std::int64_t most_given = std::int64_t{1} << 32;

Parallelism layout_of(const MemoryArguments& options) {
  Parallelism parallel = options.setup.parallel;
  const auto named = [&](const char* degree) { return std::ranges::count(options.degrees, degree) > 0; };
  for (const char* degree : {"vp", "cp"})
    if (named(degree))
      throw InvalidArgument("--parallel", fmt::format("{} cannot be combined with --serve", degree),
                            "tp, pp, ep, dp and etp");
  // Servers shard each expert over the remaining devices.
  const std::int64_t devices = parallel.stage_devices();
  if (!named("etp") && devices % parallel.expert == 0) parallel.expert_tensor = devices / parallel.expert;
  return parallel;
}

ServingSetup setup_of(const MemoryArguments& options, const ServingArguments& serving) {
  ServingSetup setup = serving.setup;
  setup.parallel = layout_of(options);
  for (const std::string& name : options.bytes_named) {
    if (name == "gradient" || name == "optimizer")
      throw InvalidArgument("--bytes", fmt::format("{} cannot be combined with --serve", name),
                            "activation, weight and cache");
    if (name == "weight") setup.weight_bytes = options.setup.bytes.weight;
    if (name == "cache") setup.cache_bytes = options.cache_bytes;
    if (name == "activation") setup.activation_bytes = options.setup.bytes.activation;
  }
  return setup;
}

std::vector<RoutingCase> recorded(const MemoryArguments& options, const ServingModel& serving) {
  if (options.counts.empty()) return {};
  const ServingSetup& setup = serving.setup();
  ReadOptions how{.count = ReadOptions::Count::nothing, .steps = ReadOptions::Steps::kept};
  how.step_tokens = setup.tokens * setup.parallel.data;  // for a trace
  const Recording recording = read_recording(options.counts, how);
  say_notes(std::span(&recording, 1));
  return recorded_cases(serving, options.counts, recording.steps);
}

}  // namespace

void add_serving(CLI::App& app, ServingArguments& arguments) {
  const std::string group = "With --serve";
  ServingSetup& setup = arguments.setup;
  app.add_flag("--serve", arguments.serve, "Memory of a served model: weights, cache and workspace");
  add_whole(app, "--sequences", setup.sequences, 1, most_given, "Sequences that a replica serves at once")
      ->group(group);
  add_whole(app, "--context", setup.context, 1, most_given, "Tokens of each sequence")->group(group);
  add_whole(app, "--tokens", setup.tokens, 1, most_given, "Tokens of a replica in one step")->group(group);
  add_whole(app, "--redundant-experts", setup.redundant_experts, 0, 1 << 20,
            "Copies per layer, beyond one of each expert")
      ->group(group);
  add_whole(app, "--slots", setup.slots, 1, 1 << 16,
            "Experts that a device borrows for spilled work (default: as many as any routing needs)")
      ->group(group);
  add_text(app, "--expert-bytes", "SIZE", "Bytes of one expert's weights, if quantized",
           [&setup](const std::string& text) { setup.expert_bytes = parse_bytes(text, "--expert-bytes"); })
      ->group(group);
}

void refuse_serving_options(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    if (option->get_group() == "With --serve")
      refuse_if_given(app, option->get_name(), "has no meaning without --serve");
}

void serve(const CLI::App& app, const MemoryArguments& options, const ServingArguments& serving) {
  for (const char* option :
       {"--attention", "--pipeline-layout", "--gpus", "--seq", "--micro-batch", "--recompute",
        "--cross-entropy", "--paper", "--with", "--without", "--borrowed-experts", "--allocation-granule",
        "--static-bytes", "--bins", "--steps"})
    refuse_if_given(app, option, "applies only to training, not to --serve");
  const std::int64_t available = available_bytes(app, options);
  const ServingModel model(read_model_description(options.model), setup_of(options, serving));
  const auto received = options.even ? std::optional(model.even_rows()) : options.received;
  const ServingReport report{.serving = model,
                             .fit = fit_serving(model, available, received, recorded(options, model)),
                             .available_bytes = available,
                             .device_bytes = options.device_bytes,
                             .device_name = options.device,
                             .ratio_thousandths = options.ratio_thousandths};
  if (options.require_fit) require_fit(report);
  show_result(report, options.json, options.html);
}

}  // namespace evenkeel::cli
