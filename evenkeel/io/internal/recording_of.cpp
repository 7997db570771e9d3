#include "evenkeel/io/internal/recording_of.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/array_trace.h"
#include "evenkeel/io/internal/axes.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

namespace {

// The layers that options say rows may be: with a model also those of multi-token prediction.
std::vector<LayerNumbers> said_by(const ReadOptions& options) {
  if (options.layers) return {LayerNumbers(*options.layers, "moe_layers")};
  if (!options.model) return {};
  return {LayerNumbers(options.model->moe_layers), LayerNumbers(options.model->all_layers())};
}

// Throws where what options say of layers is not true of these rows.
LayerNumbers numbered(const LayerNumbers& layers, int num_rows, int num_experts, const ReadOptions& options) {
  const LayerNumbers said =
      said_layers(options.layers, options.model, {"the file", layers, num_rows}, num_experts);
  return said.known() ? said : layers;
}

// Takes the layers with experts of a trace that has all hidden layers. Only a model says how many are hidden.
std::unique_ptr<TraceReader> layers_said(std::unique_ptr<TraceReader> trace, const ReadOptions& options,
                                         std::vector<std::string>& notes) {
  const int rows = trace->info().num_layers;
  if (trace->info().layers.known()) return trace;
  for (const LayerNumbers& said : said_by(options)) {
    if (!said.known() || std::ssize(said.numbers()) >= rows || said.numbers().back() >= rows) continue;
    const auto& model = options.model;
    if (model && !options.layers && rows != model->num_hidden_layers && rows <= model->num_hidden_layers)
      continue;
    if (model && rows > model->num_hidden_layers + static_cast<int>(std::ssize(model->mtp_layers))) continue;
    notes.push_back(
        fmt::format("{} of the {} layers are taken: {}", said.numbers().size(), rows, to_text(said)));
    return layers_of_trace(std::move(trace), said);
  }
  return trace;
}

// A model says how many experts there are; the last may be one that no token of a trace chose.
void take_experts_of_model(TraceReader& trace, const ReadOptions& options) {
  if (!options.model || options.num_experts || options.model->num_experts == 0) return;
  if (trace.info().num_experts <= options.model->num_experts)
    trace.set_num_experts(options.model->num_experts);
}

// A few ids may be of as many layers and experts as they like.
void require_dense_enough(const TraceInfo& info) {
  const std::int64_t most = (std::int64_t{1} << 24) + 64 * info.num_tokens * info.assignments_per_token();
  if (std::int64_t{info.num_layers} * info.num_experts > most)
    throw parse_error(info.name, "", "has few tokens for {} layers of {} experts", info.num_layers,
                      info.num_experts);
}

RoutingProfile step_of(TraceReader& trace, std::span<const TokenRange> tokens) {
  const TraceInfo& info = trace.info();
  RoutingProfile step(info.num_layers, info.num_experts, false);
  std::vector<std::int32_t> ids;
  for (const TokenRange& range : tokens) {
    ids.resize(static_cast<std::size_t>(range.size() * info.assignments_per_token()));
    trace.read_ids(range, ids);
    step.add_tokens(ids, info.top_k);
  }
  step.set_layers(info.layers);
  return step;
}

std::vector<RoutingProfile> windows_of(TraceReader& trace, std::int64_t tokens_per_step) {
  if (tokens_per_step < 1)
    throw InvalidArgument("step_tokens", fmt::format("is {}", tokens_per_step), "1 or more");
  const std::int64_t num_tokens = trace.info().num_tokens;
  std::vector<RoutingProfile> steps;
  for (std::int64_t begin = 0; begin < num_tokens; begin += tokens_per_step) {
    const TokenRange range{begin, std::min(begin + tokens_per_step, num_tokens)};
    if (range.size() < tokens_per_step && !steps.empty()) break;
    steps.push_back(step_of(trace, {&range, 1}));
  }
  return steps;
}

std::vector<RoutingProfile> blocks_of_sequences(TraceReader& trace) {
  const std::vector<TokenRange> sequences = sequences_of(trace.info());
  if (sequences.size() < std::size_t{Recording::num_blocks}) return {};
  std::vector<RoutingProfile> blocks;
  for (std::size_t block = 0; block < std::size_t{Recording::num_blocks}; ++block) {
    const std::size_t first = block * sequences.size() / Recording::num_blocks;
    const std::size_t last = (block + 1) * sequences.size() / Recording::num_blocks - 1;
    RoutingProfile loads(trace.info().num_layers, trace.info().num_experts, false);
    for (TraceBatches batches(trace, {sequences[first].begin, sequences[last].end}); batches.next();)
      loads.add_tokens(batches.ids(), trace.info().top_k);
    loads.set_layers(trace.info().layers);
    blocks.push_back(std::move(loads));
  }
  return blocks;
}

void take(FoundTrace found, const ReadOptions& options, Recording& recording) {
  const std::vector<std::string>& of_trace = found.reader->info().notes;
  recording.notes.insert(recording.notes.end(), of_trace.begin(), of_trace.end());
  recording.trace = layers_said(std::move(found.reader), options, recording.notes);
  TraceReader& trace = *recording.trace;
  take_experts_of_model(trace, options);
  const TraceInfo& info = trace.info();
  require_dense_enough(info);
  trace.set_layers(numbered(info.layers, info.num_layers, options.model ? info.num_experts : 0, options));
  if (options.count != ReadOptions::Count::nothing)
    recording.profile =
        profile_trace(trace, {.transitions = options.count == ReadOptions::Count::transitions});
  if (!options.keeps_steps()) return;
  recording.sequence_blocks = blocks_of_sequences(trace);
  recording.steps_are_windows = options.step_tokens.has_value();
  if (options.step_tokens) recording.steps = windows_of(trace, *options.step_tokens);
  if (!options.step_tokens)
    for (const auto& tokens : found.steps) recording.steps.push_back(step_of(trace, tokens));
}

// The rows of counts that are layers with experts, and their numbers in the model.
struct ChosenRows {
  std::vector<int> rows;
  LayerNumbers layers = {};
};

class Rows {
 public:
  Rows(const FoundCounts& counts, const std::string& file) : counts_(counts), file_(file) {
    const auto experts = static_cast<std::size_t>(counts.num_experts);
    for (std::size_t at = 0; at < counts.values.size(); at += experts) {
      const auto row = std::span(counts.values).subspan(at, experts);
      const std::size_t number = at / experts % static_cast<std::size_t>(counts.num_rows);
      if (number == has_load_.size()) has_load_.push_back(false);
      has_load_[number] = has_load_[number] || std::ranges::any_of(row, [](auto load) { return load > 0; });
    }
    for (int row = 0; row < counts.num_rows; ++row) (has_load(row) ? with_load_ : empty_).push_back(row);
    if (with_load_.empty()) throw ParseError(file, counts.key, "has no assignment in any layer");
  }

  ChosenRows chosen(const ReadOptions& options, std::vector<std::string>& notes) const {
    if (!counts_.layers.known() && counts_.rows != CountRows::hidden_layers)
      for (const LayerNumbers& said : said_by(options))
        if (auto rows = rows_said(said)) return *std::move(rows);
    if (counts_.layers.known() && counts_.rows != CountRows::hidden_layers) return {all(), counts_.layers};
    if (!are_hidden_layers()) {
      if (counts_.rows == CountRows::unsaid && !options.layers && !options.model) require_few_empty();
      return {all(), {}};
    }
    if (counts_.rows == CountRows::unsaid)
      notes.push_back(
          fmt::format("layers {} have no assignment and are left out as dense ones; the others are the "
                      "model's layers {}",
                      to_text(LayerNumbers(empty_)), to_text(LayerNumbers(with_load_))));
    std::vector<int> numbers;
    for (const int row : with_load_) numbers.push_back(counts_.layers.number_of(row));
    return {with_load_, LayerNumbers(std::move(numbers))};
  }

 private:
  bool has_load(int row) const { return has_load_[static_cast<std::size_t>(row)]; }

  std::vector<int> all() const {
    std::vector<int> rows(has_load_.size());
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }

  bool are_hidden_layers() const {
    return counts_.rows == CountRows::hidden_layers ||
           (counts_.rows == CountRows::hidden_if_dense && !empty_.empty()) ||
           (counts_.rows == CountRows::unsaid && !has_load(0));
  }

  // Rows that are these layers, or all hidden layers, of which only these may have a load.
  std::optional<ChosenRows> rows_said(const LayerNumbers& said) const {
    if (!said.known()) return std::nullopt;
    const std::vector<int>& numbers = said.numbers();
    if (std::ssize(numbers) == counts_.num_rows) return ChosenRows{all(), said};
    if (numbers.back() >= counts_.num_rows || !std::ranges::includes(numbers, with_load_))
      return std::nullopt;
    return ChosenRows{numbers, said};
  }

  // Rows without load amid others are dense layers, or have experts that nobody chose.
  void require_few_empty() const {
    if (empty_.size() < 2) return;
    throw InvalidArgument(
        "moe_layers",
        fmt::format("is not given; rows {} of the {} have no assignment: they may be dense layers, or layers "
                    "whose experts nobody chose",
                    to_text(LayerNumbers(empty_)), counts_.num_rows),
        fmt::format("the layers that have experts, such as 0-{}, or the model's config.json",
                    counts_.num_rows - 1));
  }

  const FoundCounts& counts_;
  const std::string& file_;
  std::vector<bool> has_load_;
  std::vector<int> with_load_;
  std::vector<int> empty_;
};

RoutingProfile profile_of_step(const FoundCounts& counts, std::int64_t step, const std::vector<int>& rows) {
  std::vector<std::int64_t> loads;
  for (const int row : rows) {
    const auto begin = counts.values.begin() + (step * counts.num_rows + row) * counts.num_experts;
    loads.insert(loads.end(), begin, begin + counts.num_experts);
  }
  return RoutingProfile(static_cast<int>(rows.size()), counts.num_experts, std::move(loads), {});
}

void take(const FoundCounts& found, const ReadOptions& options, Recording& recording) {
  ChosenRows chosen = Rows(found, recording.name).chosen(options, recording.notes);
  chosen.layers = numbered(chosen.layers, static_cast<int>(chosen.rows.size()), found.num_experts, options);
  const std::int64_t steps = std::ssize(found.values) / (std::int64_t{found.num_rows} * found.num_experts);
  for (std::int64_t step = 0; step < steps; ++step) {
    RoutingProfile of_step = profile_of_step(found, step, chosen.rows);
    of_step.set_layers(chosen.layers);
    if (step == 0) recording.profile = of_step;
    if (step > 0) recording.profile.add(of_step);
    if (options.keeps_steps() && found.by_step) recording.steps.push_back(std::move(of_step));
  }
}

// A profile's own transitions cost nothing more, unless loads alone are wanted.
void take(FoundProfile found, const ReadOptions& options, Recording& recording) {
  recording.profile = std::move(found.profile);
  recording.steps = std::move(found.steps);
  recording.profile.set_layers(numbered(recording.profile.layers(), recording.profile.num_layers(),
                                        recording.profile.num_experts(), options));
  if (options.count == ReadOptions::Count::loads) recording.profile = recording.profile.without_transitions();
}

void take(FoundStep found, const ReadOptions& options, Recording& recording) {
  const std::int64_t experts = found.loads.shape.back();
  const std::vector<std::int64_t>& values = found.loads.values;
  std::vector<std::int64_t> sum(static_cast<std::size_t>(experts), 0);
  for (std::size_t i = 0; i < values.size(); ++i) sum[i % sum.size()] += values[i];
  recording.profile = RoutingProfile(1, static_cast<int>(experts), std::move(sum), {});
  recording.profile.set_layers(numbered({}, 1, static_cast<int>(experts), options));
  recording.num_ranks = found.num_ranks;
  if (found.loads.shape.size() == 2) recording.by_source = values;
}

// What is known by its names keeps its meaning, whatever options say.
void require_as_said(const FoundRouting& found, const ReadOptions& options) {
  if (found.axes.empty() && !options.columns.empty())
    throw InvalidArgument("columns", "are for a table without names, and the file says what it is",
                          "to leave them out");
  if (options.axes.empty() || found.axes == options.axes) return;
  const bool is_trace = std::holds_alternative<FoundTrace>(found.content);
  if (is_short_form(options.axes) && (options.axes == "trace") == is_trace) return;
  throw InvalidArgument(
      is_short_form(options.axes) ? "as" : "axes",
      fmt::format("{}, but the file has {}", options.axes, is_trace ? "the tokens of a trace" : "counts"),
      "to leave it out");
}

void require_num_experts(const Recording& recording, const ReadOptions& options) {
  const int there = recording.profile.num_experts();
  if (!recording.trace && options.num_experts.value_or(there) != there)
    throw InvalidArgument("num_experts",
                          fmt::format("{}, but the file has counts of {}", *options.num_experts, there),
                          fmt::format("{}, or leave it out", there));
}

}  // namespace

Recording recording_of(FoundRouting found, const std::string& file, const ReadOptions& options) {
  require_as_said(found, options);
  Recording recording{.name = file,
                      .notes = std::move(found.notes),
                      .kind = std::move(found.kind),
                      .format = std::move(found.format),
                      .axes = std::move(found.axes)};
  std::visit([&](auto& content) { take(std::move(content), options, recording); }, found.content);
  require_num_experts(recording, options);
  return recording;
}

}  // namespace evenkeel::internal
