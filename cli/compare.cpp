// evenkeel compare: what each method would do on recorded routing, replayed step by step.
#include "evenkeel/report/compare.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/file_options.h"
#include "cli/machine_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_option.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/report/sweep.h"
#include "evenkeel/topology/presets.h"

namespace evenkeel::cli {

namespace {

struct CompareArguments {
  std::vector<std::string> recordings;
  std::vector<std::string> place_from;
  FileArguments files;
  MachineOptions machine;
  TimeModel rates;
  CompareRequest request;
  std::string over;
  std::string csv;
  std::string html;
  std::string timeline;
  bool json = false;
};

std::vector<Recording> read_all(const CompareArguments& options, const std::vector<std::string>& paths,
                                const std::string& argument) {
  ReadOptions how = options.files.reading();
  how.count = ReadOptions::Count::nothing;
  how.steps = ReadOptions::Steps::if_consistent;
  std::vector<Recording> recordings = read_recordings(paths, how, argument);
  say_notes(recordings);
  return recordings;
}

SimRequest machine_of(const CLI::App& app, const CompareArguments& options) {
  SimRequest machine = options.request.machine;
  machine.topology = topology_of(app, options.machine);
  machine.topology_has_links = is_given(app, "--topology");
  machine.expert_bytes = options.rates.expert_bytes;
  machine.device = options.rates.device;
  if (options.files.model.empty())
    for (const char* option : {"--cost", "--device", "--expert-bytes", "--budget"})
      refuse_if_given(app, option, "needs --model, which says how large experts and rows are");
  if (is_given(app, "--cost")) refuse_if_given(app, "--device", "is already given by --cost");
  if (!options.files.model.empty()) machine.model = read_model_description(options.files.model);
  if (is_given(app, "--cost")) machine.machine = read_cost(options.rates.cost);
  // A machine known by name has its device's rates.
  if (machine.model && machine.device.empty() && !machine.machine)
    machine.device = preset_device(options.machine.topology);
  return machine;
}

bool knows_seconds(const CLI::App& app, const CompareArguments& options) {
  return is_given(app, "--cost") || is_given(app, "--device") ||
         !preset_device(options.machine.topology).empty();
}

void require_output(const CompareArguments& options, const std::string& output, const char* argument) {
  if (output.empty()) return;
  require_not_read(output, argument, options.recordings, options.files.model_files());
  require_not_read(output, argument, options.place_from, {options.machine.topology, options.rates.cost});
  require_writable(output);
}

void run(const CLI::App& app, const CompareArguments& options) {
  require_one_numbering(app);
  if (!options.over.empty())
    for (const char* option : {"--csv", "--timeline"})
      refuse_if_given(app, option, "is for one comparison, not for --over");
  if (!options.csv.empty() && (options.csv == options.timeline || options.csv == options.html))
    throw InvalidArgument("--csv", options.csv + " is written by another option too", "another file");
  if (!options.html.empty() && options.html == options.timeline)
    throw InvalidArgument("--html", options.html + " is written by --timeline", "another file");
  require_output(options, options.csv, "--csv");
  require_output(options, options.timeline, "--timeline");
  if (!options.timeline.empty() && (options.files.model.empty() || !knows_seconds(app, options)))
    throw InvalidArgument("--timeline", "needs to know how long steps take",
                          "--model, and --cost or --device");
  require_page(options.html, options.recordings, options.files.model_files());
  require_page(options.html, options.place_from, {options.machine.topology, options.rates.cost});
  CompareRequest request = options.request;
  request.machine = machine_of(app, options);
  const std::vector<Recording> recordings = read_all(options, options.recordings, "TRACE");
  std::vector<Recording> place_from;
  if (!options.place_from.empty()) place_from = read_all(options, options.place_from, "--place-from");
  if (!options.over.empty()) {
    const Sweep swept =
        sweep(recordings, place_from, request, options.over, "--over", progress_line("steps"));
    for (const std::string& note : swept.points.front().compared.notes) say("note: {}", note);
    return show_result(swept, options.json, options.html);
  }
  const ComparedRecordings compared =
      compare_recordings(recordings, place_from, request, progress_line("steps"));
  for (const std::string& note : compared.notes) say("note: {}", note);
  if (!options.csv.empty()) write_file(options.csv, to_csv(compared));
  if (!options.timeline.empty()) write_file(options.timeline, to_chrome_trace(timeline_of(compared)));
  show_result(compared, options.json, options.html);
}

}  // namespace

Subcommand add_compare(CLI::App& command) {
  auto options = std::make_shared<CompareArguments>();
  CompareRequest& request = options->request;
  CLI::App* app =
      command.add_subcommand("compare", "Replay recorded routing under every method, on a machine");
  app->add_option("TRACE", options->recordings, "Traces, loads by step, or other systems' recordings")
      ->required()
      ->type_name("FILE");
  add_machine(*app, options->machine);
  add_rank_rates(*app, options->rates);
  app->add_option(
         "--methods", request.methods,
         "ep, fsdp, eplb, moetuner, robust, llep, level, level-links, slots, memfine, all; or parts: "
         "eplb:32+level (default: all that can be compared)")
      ->type_name("A,B");
  add_text(*app, "--budget", "SIZE", "Bytes that a rank may use for a layer's step",
           [&request](const std::string& text) { request.machine.budget = parse_bytes(text, "--budget"); });
  app->add_flag("--backward", request.machine.backward, "Steps include backward");
  app->add_option("--place-from", options->place_from,
                  "Recordings to make placements from (default: the first half of TRACE; the rest is judged)")
      ->allow_extra_args(false)
      ->type_name("FILE");
  add_whole(*app, "--place-every", request.place_every, 1, kAnySize,
            "Place anew every N steps, from those N steps; moves are counted");
  add_whole(*app, "--step-tokens", request.cut.tokens, 1, kAnySize,
            "Traces: tokens of a step over all ranks (default: 40 steps of whole sequences)");
  add_whole(*app, "--top-k", request.cut.top_k, 1, max_trace_assignments_per_token,
            "Traces: use only a token's first N experts. Loads: experts per token");
  add_planner_parameters(*app, request.machine.planner);
  add_num_experts(*app, options->files);
  add_axes(*app, options->files);
  add_numbering(*app, options->files);
  app->add_option("--over", options->over,
                  "One comparison for each value: ranks=8,16,32, or step-tokens, top-k, budget, link, slots, "
                  "imbalance-threshold, min-segment")
      ->type_name("NAME=V,V");
  app->add_option("--csv", options->csv, "Also every step, as a table")->type_name("FILE");
  add_html(*app, options->html);
  app->add_option("--timeline", options->timeline,
                  "The least even layer's step under each method, for ui.perfetto.dev")
      ->type_name("FILE.json");
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel compare data/tiny-moe/routing_step1563.npz --ranks 8 --nodes 2\n"
      "  evenkeel compare trace.npz --topology 8x8xh100 --model config.json --budget 2GiB");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
