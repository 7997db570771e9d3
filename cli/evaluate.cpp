// evenkeel evaluate: placements on recordings that they need not have been made from, and whether one pays.
#include "evenkeel/placement/evaluate/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/machine_option.h"
#include "cli/numbering.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/placement_option.h"
#include "cli/subcommand.h"
#include "cli/time_model.h"
#include "cli/verdict_report.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/routing_file.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

struct EvaluateArguments {
  std::vector<std::string> recordings;
  std::vector<std::string> placements;
  std::string from;
  std::string as;
  Machine machine;
  Numbering numbering;
  TimeModel time;
  std::int64_t num_experts = 0;
  std::int64_t step_tokens = 0;
  bool json = false;
};

struct Recording {
  std::string file;
  RoutingProfile profile;
  std::vector<RoutingProfile> steps;
  std::vector<std::string> notes;  // of how the file was read
  bool is_trace = false;
};

class Candidate {
 public:
  // Contiguous homes.
  explicit Candidate(int num_ranks) : num_ranks_(num_ranks) {}
  Candidate(std::string file, std::string option, int num_ranks)
      : file_(std::move(file)),
        option_(std::move(option)),
        num_ranks_(num_ranks),
        placement_(read_placement_file(file_, num_ranks)) {
    if (placement_->num_ranks() != num_ranks)
      throw InvalidArgument(option_, fmt::format("{} is for {} ranks", file_, placement_->num_ranks()),
                            fmt::format("one for {} ranks", num_ranks));
  }

  const std::string& file() const { return file_; }
  const std::optional<Placement>& placement() const { return placement_; }
  const std::vector<RecordingJudgement>& judgements() const { return judgements_; }

  void judge_on(const std::vector<Recording>& recordings, const Topology& topology) {
    for (const Recording& each : recordings)
      judgements_.push_back(judge(
          each.profile, each.steps, topology,
          on({each.file, each.profile.layers(), each.profile.num_layers()}, each.profile.num_experts())));
  }

  // The homes of these layers.
  Placement on(const NumberedRows& rows, int num_experts) const {
    if (!placement_) return Placement::contiguous(rows.num_rows, num_experts, num_ranks_);
    if (placement_->num_experts() != num_experts)
      throw InvalidArgument(option_, fmt::format("{} is for {} experts", file_, placement_->num_experts()),
                            fmt::format("one for {} experts, as {} has", num_experts, rows.name));
    return placement_->paired_with(rows, file_, option_);
  }

 private:
  std::string file_ = "contiguous";
  std::string option_;
  int num_ranks_;
  std::optional<Placement> placement_ = {};
  std::vector<RecordingJudgement> judgements_;
};

Recording read_recording(const EvaluateArguments& options, const std::string& path) {
  RoutingOptions how{.bare = parse_bare("--as", options.as), .keep_steps = true};
  if (options.num_experts > 0) how.num_experts = static_cast<int>(options.num_experts);
  how = numbered(std::move(how), options.numbering);
  RoutingFile file = open_routing(path, how);
  require_bare(file, how.bare);
  say_notes(path, file.notes);
  const auto window = options.step_tokens > 0 ? std::optional(options.step_tokens) : std::nullopt;
  Recording recording{
      .file = path, .profile = profile_of(file, how), .steps = steps_of(file, window), .notes = file.notes};
  recording.is_trace = file.trace != nullptr;
  return recording;
}

std::vector<Candidate> read_candidates(const EvaluateArguments& options, int num_ranks) {
  std::vector<Candidate> all = {Candidate(num_ranks)};
  for (const std::string& path : options.placements) all.emplace_back(path, "--placement", num_ranks);
  return all;
}

Json json_of(const std::optional<StepSpread>& steps) {
  if (!steps) return nullptr;
  return {{"median", steps->median}, {"p95", steps->p95}, {"worst", steps->worst}};
}

Json json_of(const Recording& recording, const RecordingJudgement& judgement) {
  const LayerNumbers& numbers = recording.profile.layers();
  Json layers = Json::array();
  for (int row = 0; row < recording.profile.num_layers(); ++row) layers.push_back(numbers.number_of(row));
  const PlacementQuality& quality = judgement.quality;
  return {{"recording", recording.file},
          {"layers", std::move(layers)},
          {"max_over_mean_mean", quality.max_over_mean_mean},
          {"max_over_mean_worst", quality.max_over_mean_worst},
          {"crossing", quality.traffic_known ? Json(quality.crossing) : Json(nullptr)},
          {"crossing_between_nodes", quality.traffic_known ? Json(quality.crossing_across) : Json(nullptr)},
          {"steps", json_of(judgement.steps)}};
}

struct Report {
  const std::vector<Recording>& recordings;
  const std::vector<Candidate>& candidates;
  const Topology& topology;
  const Candidate& against;
  const VerdictReport& verdict;
};

void print_json(const Report& report) {
  Json placements = Json::array();
  for (const Candidate& candidate : report.candidates) {
    Json results = Json::array();
    for (std::size_t i = 0; i < report.recordings.size(); ++i)
      results.push_back(json_of(report.recordings[i], candidate.judgements()[i]));
    placements.push_back({{"file", candidate.file()}, {"results", std::move(results)}});
  }
  Json notes = Json::array();
  for (const Recording& recording : report.recordings)
    for (const std::string& note : recording.notes)
      notes.push_back(fmt::format("{}: {}", recording.file, note));
  print_object({{"placements", std::move(placements)},
                {"verdict", json_of(report.verdict)},
                {"notes", std::move(notes)}});
}

std::string ratio(double value) {
  return fmt::format("{:.3f}", value);
}

void print_table(const Report& report) {
  const Recording& first = report.recordings.front();
  put("{} layers of {} experts on {} ranks: max/mean load of {} placements on {} recording{}\n\n",
      first.profile.num_layers(), first.profile.num_experts(), report.topology.num_ranks(),
      report.candidates.size(), report.recordings.size(), report.recordings.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < report.recordings.size(); ++i) {
    const bool steps = report.candidates.front().judgements()[i].steps.has_value();
    std::vector<std::string> head = {report.recordings[i].file, "mean of layers", "worst layer"};
    if (steps) head.insert(head.end(), {"step: median", "p95", "worst"});
    Table table(head);
    std::vector<const Candidate*> shown = {&report.against};
    for (const Candidate& candidate : report.candidates)
      if (candidate.file() != report.against.file()) shown.push_back(&candidate);
    for (const Candidate* candidate : shown) {
      const RecordingJudgement& judged = candidate->judgements()[i];
      std::vector<std::string> row = {candidate->file(), ratio(judged.quality.max_over_mean_mean),
                                      ratio(judged.quality.max_over_mean_worst)};
      if (judged.steps)
        row.insert(row.end(),
                   {ratio(judged.steps->median), ratio(judged.steps->p95), ratio(judged.steps->worst)});
      table.add(std::move(row));
    }
    put("{}\n", table.text());
  }
  print_verdict(report.verdict);
}

// The one that is most level over all recordings, by step where steps are known; of equal ones the first.
const Candidate& best_of(const std::vector<Candidate>& candidates) {
  const auto ratio_of = [](const Candidate& candidate) {
    double sum = 0;
    for (const RecordingJudgement& judged : candidate.judgements())
      sum += judged.steps ? judged.steps->mean : judged.quality.max_over_mean_mean;
    return sum;
  };
  return *std::min_element(candidates.begin() + 1, candidates.end(),
                           [&](const Candidate& a, const Candidate& b) { return ratio_of(a) < ratio_of(b); });
}

// The one with the most layers.
const Recording& widest_of(const std::vector<Recording>& recordings) {
  return *std::ranges::max_element(recordings, {},
                                   [](const Recording& each) { return each.profile.num_layers(); });
}

void require_steps_of_traces(const CLI::App& app, const std::vector<Recording>& recordings) {
  if (std::ranges::none_of(recordings, &Recording::is_trace))
    refuse_if_given(app, "--step-tokens", "is for traces, and no recording is one");
}

void run(const CLI::App& app, const EvaluateArguments& options) {
  require_one_numbering(app);
  require_time_model(app, options.time, options.numbering.model, options.step_tokens);
  const Topology topology = topology_of(app, options.machine);
  std::vector<Recording> recordings;
  for (const std::string& path : options.recordings) recordings.push_back(read_recording(options, path));
  require_steps_of_traces(app, recordings);
  std::vector<Candidate> candidates = read_candidates(options, topology.num_ranks());
  Candidate before = options.from.empty() ? Candidate(topology.num_ranks())
                                          : Candidate(options.from, "--from", topology.num_ranks());
  for (Candidate& candidate : candidates) candidate.judge_on(recordings, topology);
  before.judge_on(recordings, topology);

  const Candidate& best = best_of(candidates);
  // A server's file has rows for dense layers too; those of a recording have experts.
  const Recording& widest = widest_of(recordings);
  const NumberedRows rows{widest.file, widest.profile.layers(), widest.profile.num_layers()};
  const int experts = widest.profile.num_experts();
  const StepModel model = read_step_model(app, options.time, options.numbering.model, options.step_tokens,
                                          topology, widest.file, experts);
  const Move move = move_between(before.on(rows, experts), best.on(rows, experts), model);
  const VerdictReport verdict{
      .placement = best.file(),
      .against = before.file(),
      .verdict = verdict_of(before.judgements(), best.judgements(), move, model, rows.num_rows,
                            topology.num_ranks(), options.time.steps_served()),
      .of_steps = any_steps(best.judgements())};
  const Report report{recordings, candidates, topology, before, verdict};
  if (options.json)
    print_json(report);
  else
    print_table(report);
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
  app->add_option("--from", options->from, "What runs now, instead of contiguous homes")->type_name("FILE");
  add_machine(*app, options->machine);
  add_whole(*app, "--step-tokens", options->step_tokens, 1, kAnySize,
            "Traces are also judged in steps of so many tokens")
      ->default_str("");
  add_time_model(*app, options->time);
  add_whole(*app, "--num-experts", options->num_experts, 1, max_trace_experts, "Instead of what a trace says")
      ->default_str("");
  app->add_option("--as", options->as, "What an array that nobody named holds: counts, or trace")
      ->type_name("KIND");
  add_numbering(*app, options->numbering);
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel evaluate data/tiny-moe/routing_step1563.npz --placement placement.json --ranks "
      "8");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
