// evenkeel evaluate: judges placements on recordings, usually other than those they were made from, and says
// whether a placement pays.
#include "evenkeel/report/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "cli/file_options.h"
#include "cli/machine_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_option.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/placement/evaluate/provenance.h"

namespace evenkeel::cli {

namespace {

struct EvaluateArguments {
  std::vector<std::string> recordings;
  std::vector<std::string> placements;
  std::string from;
  std::string dispatch;
  FileArguments files;
  MachineOptions machine;
  TimeModel time;
  std::optional<std::int64_t> step_tokens;
  std::string html;
  bool json = false;
};

std::vector<Recording> read_all(const CLI::App& app, const EvaluateArguments& options) {
  ReadOptions how = options.files.reading();
  how.steps = ReadOptions::Steps::kept;
  how.step_tokens = options.step_tokens;
  std::vector<Recording> recordings;
  for (const std::string& path : options.recordings) recordings.push_back(read_recording(path, how));
  say_notes(recordings);
  if (std::ranges::none_of(recordings, &Recording::is_trace))
    refuse_if_given(app, "--step-tokens", "applies only to traces, but no recording is a trace");
  return recordings;
}

NamedPlacement read_named(const std::string& path, const std::string& option, const std::string& dispatch,
                          int num_ranks) {
  PlacementFile file = read_placement_as(path, {.num_ranks = num_ranks});
  if (file.placement.num_ranks() != num_ranks)
    throw InvalidArgument(option, fmt::format("{} is for {} ranks", path, file.placement.num_ranks()),
                          fmt::format("one for {} ranks", num_ranks));
  // Our own files record the dispatch rule they were placed for.
  const auto placed_for = file.provenance.find("dispatch");
  const std::string rule =
      dispatch.empty() && placed_for != file.provenance.end() ? placed_for->second : dispatch;
  return {.name = path,
          .placement = std::move(file.placement),
          .argument = option,
          .made_from = digests_in(file.provenance),
          .dispatch = dispatch_for(detect_placement_format(path), rule, "--dispatch")};
}

// Unless the command line gives the number of ranks, takes it from the placement files, which must agree.
MachineOptions machine_of(const CLI::App& app, const EvaluateArguments& options) {
  MachineOptions machine = options.machine;
  if (is_machine_given(app)) return machine;
  std::string source;
  const auto read_ranks = [&](const std::string& path, const char* option) {
    const std::optional<int> ranks = num_ranks_in(path);
    if (!ranks) return;
    if (machine.ranks != 0 && machine.ranks != *ranks)
      throw InvalidArgument(option, fmt::format("{} is for {} ranks", path, *ranks),
                            fmt::format("a placement for {} ranks, like {}", machine.ranks, source));
    machine.ranks = *ranks;
    source = path;
  };
  for (const std::string& path : options.placements) read_ranks(path, "--placement");
  if (!options.from.empty()) read_ranks(options.from, "--from");
  if (machine.ranks == 0)
    throw InvalidArgument(
        "--ranks",
        fmt::format("is missing, and neither --topology nor {} gives it", options.placements.front()),
        "the number of ranks");
  return machine;
}

void run(const CLI::App& app, const EvaluateArguments& options) {
  require_one_numbering(app);
  require_time_model(app, options.time, options.files.model, options.step_tokens);
  std::vector<std::string> others = options.files.model_files();
  others.insert(others.end(), options.placements.begin(), options.placements.end());
  others.insert(others.end(), {options.from, options.machine.topology, options.time.cost});
  require_page(options.html, options.recordings, others);
  const ModeOfSources mode(options.recordings);
  const Topology topology = topology_of(app, machine_of(app, options));
  const int ranks = topology.num_ranks();
  std::vector<Recording> recordings = read_all(app, options);
  std::vector<NamedPlacement> placements;
  for (const std::string& path : options.placements)
    placements.push_back(read_named(path, "--placement", options.dispatch, ranks));
  std::optional<NamedPlacement> from;
  if (!options.from.empty()) from = read_named(options.from, "--from", options.dispatch, ranks);
  const Recording& whole = widest(recordings);
  const StepModel model = read_step_model(app, options.time, options.files.model, options.step_tokens,
                                          topology, whole.name, whole.profile.num_experts());
  show_result(evaluate(std::move(recordings), std::move(placements), std::move(from), topology, model,
                       options.time.horizon),
              options.json, options.html, topology);
}

}  // namespace

Subcommand add_evaluate(CLI::App& command) {
  auto options = std::make_shared<EvaluateArguments>();
  CLI::App* app = command.add_subcommand("evaluate", "Judge placements on recordings, and whether one pays");
  app->add_option("RECORDING", options->recordings, "Profiles, traces, counts, or other systems' recordings")
      ->required()
      ->type_name("FILE");
  app->add_option("--placement", options->placements, "A placement of any format; may be given again")
      ->required()
      ->allow_extra_args(false)
      ->type_name("FILE");
  app->add_option("--from", options->from, "The placement in use now (default: contiguous homes)")
      ->type_name("FILE");
  add_dispatch(*app, options->dispatch);
  add_machine(*app, options->machine);
  add_whole(*app, "--step-tokens", options->step_tokens, 1, kAnySize,
            "Also judge traces in steps of N tokens");
  add_time_model(*app, options->time);
  add_num_experts(*app, options->files);
  add_axes(*app, options->files);
  add_numbering(*app, options->files);
  add_html(*app, options->html);
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel evaluate data/tiny-moe/routing_step1563.npz --placement placement.json --ranks "
      "8");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
