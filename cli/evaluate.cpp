// evenkeel evaluate: placements on recordings that they need not have been made from, and whether one pays.
#include "evenkeel/placement/evaluate/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/cost_file.h"
#include "cli/machine_option.h"
#include "cli/numbering.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/placement_option.h"
#include "cli/subcommand.h"
#include "cli/table.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/io/routing_file.h"
#include "evenkeel/model/parameters.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

struct EvaluateArguments {
  std::vector<std::string> recordings;
  std::vector<std::string> placements;
  std::string from;
  std::string cost;
  std::string as;
  Machine machine;
  Numbering numbering;
  std::int64_t num_experts = 0;
  std::int64_t step_tokens = 0;
  std::int64_t tokens_per_step = 0;
  std::int64_t horizon = 0;
  std::int64_t expert_bytes = 0;
  double tflops = 0;
  double link = 0;
  bool json = false;
};

struct Recording {
  std::string file;
  RoutingProfile profile;
  std::vector<RoutingProfile> steps;
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
  Recording recording{.file = path, .profile = profile_of(file, how), .steps = steps_of(file, window)};
  recording.is_trace = file.trace != nullptr;
  return recording;
}

std::vector<Candidate> read_candidates(const EvaluateArguments& options, int num_ranks) {
  std::vector<Candidate> all = {Candidate(num_ranks)};
  for (const std::string& path : options.placements) all.emplace_back(path, "--placement", num_ranks);
  return all;
}

// The slowest link into a rank that the machine says, where it says any.
std::optional<double> link_of(const CLI::App& app, const EvaluateArguments& options,
                              const Topology& topology) {
  if (is_given(app, "--link")) return options.link;
  if (!is_given(app, "--topology") || topology.num_ranks() < 2) return std::nullopt;
  double slowest = std::numeric_limits<double>::infinity();
  for (RankId from : indices<RankId>(topology.num_ranks()))
    for (RankId to : indices<RankId>(topology.num_ranks()))
      if (from != to) slowest = std::min(slowest, topology.link(from, to).gigabytes_per_s);
  return slowest;
}

double flops_of(const CLI::App& app, const EvaluateArguments& options) {
  return is_given(app, "--tflops") ? options.tflops * 1e12 : read_cost(options.cost).flops_per_second;
}

// A folder has its model's.
std::string config_of(const std::string& model) {
  std::error_code unknown;  // what cannot be looked at, its reader names
  return std::filesystem::is_directory(model, unknown) ? model + "/config.json" : model;
}

StepModel step_model(const CLI::App& app, const EvaluateArguments& options, const Topology& topology,
                     const std::string& file, int num_experts) {
  StepModel model{.link_gigabytes_per_s = link_of(app, options, topology)};
  const bool tokens_known = options.tokens_per_step > 0 || options.step_tokens > 0;
  const auto tokens =
      static_cast<double>(options.tokens_per_step > 0 ? options.tokens_per_step : options.step_tokens);
  if (options.numbering.model.empty()) return model;
  const ModelDescription description = read_model_description(config_of(options.numbering.model));
  if (description.experts.count != num_experts)
    throw InvalidArgument(
        "--model",
        fmt::format("has {} experts a layer, but {} has {}", description.experts.count, file, num_experts),
        "the config.json of the model that was recorded");
  const auto weights = static_cast<double>(expert_parameters(description));
  if (options.expert_bytes > 0)
    model.expert_bytes = static_cast<double>(options.expert_bytes);
  else if (description.dtype_bytes > 0)
    model.expert_bytes = weights * static_cast<double>(description.dtype_bytes);
  if (tokens_known) model.assignments_per_step = tokens * static_cast<double>(description.experts.top_k);
  if (is_given(app, "--tflops") || is_given(app, "--cost"))
    model.assignment_us = 2 * weights / flops_of(app, options) * 1e6;
  return model;
}

void require_sense(const CLI::App& app, const EvaluateArguments& options) {
  require_one_numbering(app);
  if (is_given(app, "--cost")) refuse_if_given(app, "--tflops", "is what --cost says");
  if (options.numbering.model.empty())
    for (const char* option : {"--cost", "--tflops", "--link", "--tokens-per-step", "--expert-bytes"})
      refuse_if_given(app, option, "needs --model, which says how large an expert is");
  if (options.tokens_per_step == 0 && options.step_tokens == 0)
    for (const char* option : {"--cost", "--tflops"})
      refuse_if_given(app, option, "needs --tokens-per-step, or --step-tokens");
}

Json json_of(std::optional<double> value) {
  return value ? Json(*value) : Json(nullptr);
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
  const Candidate& best;
  const Candidate& against;
  const Verdict& verdict;
};

Json json_of(const Report& report) {
  const Verdict& verdict = report.verdict;
  return {{"placement", report.best.file()},
          {"against", report.against.file()},
          {"answer", name_of(verdict.answer)},
          {"sentence", verdict.sentence},
          {"max_over_mean_before", verdict.max_over_mean_before},
          {"max_over_mean_after", verdict.max_over_mean_after},
          {"better_on", verdict.better_on},
          {"recordings", verdict.recordings},
          {"step_ms_before", json_of(verdict.step_ms_before)},
          {"step_ms_after", json_of(verdict.step_ms_after)},
          {"moved_experts", verdict.move.experts},
          {"moved_bytes", json_of(verdict.move.bytes)},
          {"move_ms", json_of(verdict.move.ms)},
          {"break_even_steps", json_of(verdict.break_even_steps)}};
}

void print_json(const Report& report) {
  Json placements = Json::array();
  for (const Candidate& candidate : report.candidates) {
    Json results = Json::array();
    for (std::size_t i = 0; i < report.recordings.size(); ++i)
      results.push_back(json_of(report.recordings[i], candidate.judgements()[i]));
    placements.push_back({{"file", candidate.file()}, {"results", std::move(results)}});
  }
  print_object({{"placements", std::move(placements)}, {"verdict", json_of(report)}});
}

std::string ratio(double value) {
  return fmt::format("{:.3f}", value);
}

bool any_steps(const Report& report) {
  return std::ranges::any_of(report.best.judgements(),
                             [](const RecordingJudgement& judged) { return judged.steps.has_value(); });
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.2f} TB", bytes / 1e12);
  return bytes >= 1e9 ? fmt::format("{:.2f} GB", bytes / 1e9) : fmt::format("{:.1f} MB", bytes / 1e6);
}

void print_verdict(const Report& report) {
  const Verdict& verdict = report.verdict;
  put("  {} against {}: {}\n", report.best.file(), report.against.file(), verdict.sentence);
  put("  max/mean load, mean over recordings{}: {:.3f} -> {:.3f}; lower on {} of {}\n",
      any_steps(report) ? ", of steps where they have them" : "", verdict.max_over_mean_before,
      verdict.max_over_mean_after, verdict.better_on, verdict.recordings);
  if (verdict.step_ms_before)
    put("  MoE layers of a step, by the model: {:.3f} ms -> {:.3f} ms\n", *verdict.step_ms_before,
        *verdict.step_ms_after);
  put("  to move: {} experts, at most {} to one rank{}{}\n", verdict.move.experts, verdict.move.most_on_rank,
      verdict.move.bytes ? fmt::format(", {} in all", bytes_text(*verdict.move.bytes)) : "",
      verdict.move.ms ? fmt::format(", {:.2f} ms", *verdict.move.ms) : "");
  if (verdict.step_ms_before)
    put("  the model: the heaviest rank's arithmetic, layer after layer; waiting for weights and sending "
        "left out\n");
  else
    put("  what a step takes: --model, --tokens-per-step, and --tflops or --cost say it\n");
  if (!verdict.move.ms) put("  what the move takes: --model, and --link or --topology say it\n");
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
  print_verdict(report);
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
  require_sense(app, options);
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
  const StepModel model = step_model(app, options, topology, widest.file, experts);
  const Move move = move_between(before.on(rows, experts), best.on(rows, experts), model);
  const Verdict verdict =
      verdict_of(before.judgements(), best.judgements(), move, model, rows.num_rows, topology.num_ranks(),
                 options.horizon > 0 ? std::optional(static_cast<double>(options.horizon)) : std::nullopt);
  const Report report{recordings, candidates, topology, best, before, verdict};
  if (options.json)
    print_json(report);
  else
    print_table(report);
}

void add_model(CLI::App& app, EvaluateArguments& options) {
  add_whole(app, "--tokens-per-step", options.tokens_per_step, 1, kAnySize,
            "Tokens of a step over all ranks; else what --step-tokens says")
      ->default_str("");
  app.add_option("--cost", options.cost, "What products take, as evenkeel bench --calibrate measures it")
      ->type_name("FILE");
  add_number(app, "--tflops", options.tflops, 1e-6, 1e9,
             "Instead: 10^12 operations a second that products reach")
      ->default_str("");
  add_number(app, "--link", options.link, 1e-6, 1e9,
             "GB/s into a rank, for the move; else the topology's slowest")
      ->default_str("");
  add_size(app, "--expert-bytes", options.expert_bytes,
           "One expert's weights, where they are quantized; else by the config's type")
      ->default_str("");
  add_whole(app, "--horizon", options.horizon, 1, kAnySize, "Steps that the placement will serve")
      ->default_str("");
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
  add_model(*app, *options);
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
