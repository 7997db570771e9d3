// evenkeel profile: adds traces up to one routing profile and shows how uneven it is.
#include "evenkeel/report/profile.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/file_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/subcommand.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/profile_file.h"

namespace evenkeel::cli {

namespace {

struct ProfileArguments {
  std::vector<std::string> traces;
  std::string output;
  FileArguments files;
  std::optional<int> ranks;
  bool without_transitions = false;
  bool json = false;
};

FileFormat format_of(const std::string& output) {
  for (FileFormat format : {FileFormat::safetensors, FileFormat::npz, FileFormat::json})
    if (output.ends_with(fmt::format(".{}", name_of(format)))) return format;
  throw InvalidArgument("--output", fmt::format("the extension of '{}' names no format of profiles", output),
                        ".safetensors, .npz, .json");
}

// Rows are added layer by layer, so the files must have the same layers.
void add(const RoutingProfile& one, const std::string& path, const std::string& first, RoutingProfile& sum) {
  if (one.num_layers() != sum.num_layers() ||
      (one.layers().known() && sum.layers().known() && one.layers() != sum.layers()))
    throw InvalidArgument(
        "TRACE",
        fmt::format("{} has {}, but {} has {}", path, described(one.layers(), one.num_layers()), first,
                    described(sum.layers(), sum.num_layers())),
        "files of the same layers");
  sum.add(one);
}

ProfileReport profile_all(const ProfileArguments& options) {
  ReadOptions how = options.files.reading();
  if (options.without_transitions) how.count = ReadOptions::Count::loads;
  ProfileReport all{
      .profile = {}, .traces = options.traces, .tokens = 0, .ranks = options.ranks, .output = options.output};
  for (const std::string& path : options.traces) {
    Recording one = read_recording(path, how);
    say_notes(path, one.notes);
    if (!one.axes.empty()) all.axes[path] = one.axes;
    if (all.profile.num_layers() == 0)
      all.profile = std::move(one.profile);
    else
      add(one.profile, path, options.traces.front(), all.profile);
    if (!one.trace) all.tokens.reset();
    if (all.tokens) *all.tokens += one.trace->info().num_tokens;
  }
  return all;
}

void run(const CLI::App& app, const ProfileArguments& options) {
  std::optional<FileFormat> format;
  const ModeOfSources mode(options.traces);
  if (!options.output.empty()) {
    format = format_of(options.output);
    require_not_read(options.output, "--output", options.traces, options.files.model_files());
    require_writable(options.output);
  }
  require_one_numbering(app);
  const ProfileReport report = profile_all(options);
  if (format) write_profile(report.profile, options.output, *format);
  print_result(report, options.json);
}

}  // namespace

Subcommand add_profile(CLI::App& command) {
  auto options = std::make_shared<ProfileArguments>();
  CLI::App* app = command.add_subcommand("profile", "Count a trace: loads, transitions, imbalance per layer");
  app->add_option("TRACE", options->traces, "Traces, recordings or counts of one model, added up")
      ->required()
      ->type_name("FILE");
  app->add_option("-o,--output", options->output, "The profile: .safetensors, .npz or .json")
      ->type_name("FILE");
  add_num_experts(*app, options->files);
  add_whole(*app, "--ranks", options->ranks, 1, max_ranks, "Also show the imbalance over N ranks");
  add_axes(*app, options->files);
  add_numbering(*app, options->files);
  app->add_flag("--no-transitions", options->without_transitions, "Count loads alone");
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel profile data/tiny-moe/routing_step1563.npz --ranks 8 -o profile.safetensors");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
