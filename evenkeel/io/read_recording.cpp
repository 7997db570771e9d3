#include "evenkeel/io/read_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/array_trace.h"
#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/nameless.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel {

using namespace internal;

namespace {

// The layer numbers that the options allow for the rows. A model allows two: with and without its layers of
// multi-token prediction.
std::vector<LayerNumbers> possible_layers(const ReadOptions& options) {
  if (options.layers) return {LayerNumbers(*options.layers, "moe_layers")};
  if (!options.model) return {};
  return {LayerNumbers(options.model->moe_layers), LayerNumbers(options.model->all_layers())};
}

// Numbers the rows by the options, or by `layers`. Throws if the options do not fit the rows.
LayerNumbers numbered(const LayerNumbers& layers, int num_rows, int num_experts, const ReadOptions& options) {
  const LayerNumbers given =
      layers_from_options(options.layers, options.model, {"the file", layers, num_rows}, num_experts);
  return given.known() ? given : layers;
}

// Selects the layers with experts from a trace that has all hidden layers. Only a model's config gives the
// number of hidden layers.
std::unique_ptr<TraceReader> with_experts_only(std::unique_ptr<TraceReader> trace, const ReadOptions& options,
                                               std::vector<std::string>& notes) {
  const int rows = trace->info().num_layers;
  if (trace->info().layers.known()) return trace;
  for (const LayerNumbers& given : possible_layers(options)) {
    if (!given.known() || std::ssize(given.numbers()) >= rows || given.numbers().back() >= rows) continue;
    const auto& model = options.model;
    if (model && !options.layers && rows != model->num_hidden_layers && rows <= model->num_hidden_layers)
      continue;
    if (model && rows > model->num_hidden_layers + static_cast<int>(std::ssize(model->mtp_layers))) continue;
    notes.push_back(
        fmt::format("{} of the {} layers are taken: {}", given.numbers().size(), rows, to_text(given)));
    return layers_of_trace(std::move(trace), given);
  }
  return trace;
}

// Takes the number of experts from the model's config, since no token of the trace may have chosen the last
// one.
void take_experts_of_model(TraceReader& trace, const ReadOptions& options) {
  if (!options.model || options.num_experts || options.model->num_experts == 0) return;
  if (trace.info().num_experts <= options.model->num_experts)
    trace.set_num_experts(options.model->num_experts);
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
  recording.trace = with_experts_only(std::move(found.reader), options, recording.notes);
  TraceReader& trace = *recording.trace;
  take_experts_of_model(trace, options);
  const TraceInfo& info = trace.info();
  require_dense_enough(info.num_tokens * info.assignments_per_token(), 1, info.num_layers, info.num_experts,
                       info.name);
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

// The rows of counts that are layers with experts, and their numbers in the model. If the rows are all hidden
// layers, rows without any assignment are left out as dense layers. The options take precedence over a guess
// from the rows' contents.
struct ChosenRows {
  std::vector<int> rows;
  LayerNumbers layers = {};
};

ChosenRows chosen_rows(const FoundCounts& counts, const std::string& file, const ReadOptions& options,
                       std::vector<std::string>& notes) {
  std::vector<bool> has_load(static_cast<std::size_t>(counts.num_rows), false);
  for (std::size_t i = 0; i < counts.values.size(); ++i)
    if (counts.values[i] > 0)
      has_load[i / static_cast<std::size_t>(counts.num_experts) % has_load.size()] = true;
  std::vector<int> all, with_load, empty;
  for (int row = 0; row < counts.num_rows; ++row) {
    all.push_back(row);
    (has_load[static_cast<std::size_t>(row)] ? with_load : empty).push_back(row);
  }
  if (with_load.empty()) throw ParseError(file, counts.key, "has no assignment in any layer");
  const bool unknown = counts.rows == CountRows::unknown;
  if (counts.rows != CountRows::hidden_layers) {
    if (counts.layers.known()) return {all, counts.layers};
    // The rows may be exactly the layers that the options name, or all hidden layers. In the second case only
    // the named layers may have a load.
    for (const LayerNumbers& given : possible_layers(options)) {
      if (std::ssize(given.numbers()) == counts.num_rows) return {all, given};
      if (given.known() && given.numbers().back() < counts.num_rows &&
          std::ranges::includes(given.numbers(), with_load))
        return {given.numbers(), given};
    }
    const bool hidden = unknown ? !has_load[0] : counts.rows == CountRows::hidden_if_dense && !empty.empty();
    if (!hidden && unknown && !options.layers && !options.model && empty.size() > 1)
      throw InvalidArgument(
          "moe_layers",
          fmt::format("is not given; rows {} of the {} rows have no load: they may be dense layers, or "
                      "layers whose experts no token chose",
                      to_text(LayerNumbers(empty)), counts.num_rows),
          fmt::format("the layers that have experts, such as 0-{}, or the model's config.json",
                      counts.num_rows - 1));
    if (!hidden) return {all, {}};
  }
  if (unknown)
    notes.push_back(fmt::format(
        "layers {} have no assignment and are left out as dense ones; the others are the model's layers {}",
        to_text(LayerNumbers(empty)), to_text(LayerNumbers(with_load))));
  std::vector<int> numbers;
  for (const int row : with_load) numbers.push_back(counts.layers.number_of(row));
  return {with_load, LayerNumbers(std::move(numbers))};
}

RoutingProfile profile_of_step(const FoundCounts& counts, std::int64_t step, const std::vector<int>& rows) {
  std::vector<std::int64_t> loads;
  for (const int row : rows) {
    const auto begin = counts.values.begin() + (step * counts.num_rows + row) * counts.num_experts;
    loads.insert(loads.end(), begin, begin + counts.num_experts);
  }
  return RoutingProfile(static_cast<int>(rows.size()), counts.num_experts, std::move(loads), {});
}

void take(const FoundCounts& found, const ReadOptions& options, Recording& recording) {
  ChosenRows chosen = chosen_rows(found, recording.name, options, recording.notes);
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

// Transitions in a profile are kept even with Count::nothing; only Count::loads drops them.
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
  if (found.loads.shape.size() == 1) return;
  recording.num_ranks = static_cast<int>(found.loads.shape.front());
  recording.by_source = values;
}

// Throws if options contradict a file whose array or column names already say what it holds.
void require_as_said(const FoundRouting& found, const ReadOptions& options) {
  if (found.axes.empty() && !options.columns.empty())
    throw InvalidArgument("columns",
                          "apply only to a table without column names, but the file names what it holds",
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
    throw InvalidArgument(
        "num_experts", fmt::format("{}, but the file has counts of {} experts", *options.num_experts, there),
        fmt::format("{}, or leave it out", there));
}

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

}  // namespace

std::string parse_as(const std::string& option, const std::string& text) {
  if (text.empty() || text == "counts" || text == "trace") return text;
  throw InvalidArgument(option, fmt::format("'{}'", text), "counts, trace");
}

Recording read_recording(const ByteSource& source, const ReadOptions& options) {
  return read_recording_known(detect_content(source), source, options);
}

Recording internal::read_recording_known(Content content, const ByteSource& source,
                                         const ReadOptions& options) {
  if (options.num_experts && (*options.num_experts < 1 || *options.num_experts > max_trace_experts))
    throw InvalidArgument("num_experts", fmt::format("{} experts", *options.num_experts),
                          fmt::format("1..{}", max_trace_experts));
  if (!options.axes.empty() && !options.columns.empty())
    throw InvalidArgument("columns", "cannot be given together with axes", "one of the two");
  try {
    return recording_of(find_routing(content, source, options), source.name(), options);
  } catch (const ParseError& error) {
    if (options.steps != ReadOptions::Steps::if_consistent) throw;
    ReadOptions whole = options;
    whole.steps = ReadOptions::Steps::added_up;
    Recording recording = recording_of(find_routing(content, source, whole), source.name(), whole);
    recording.notes.push_back(fmt::format("its steps are not kept: {}", error.what()));
    return recording;
  }
}

namespace {

void require_same_model(const Recording& first, const Recording& other, const std::string& argument) {
  if (first.is_like(other)) return;
  throw InvalidArgument(
      argument, fmt::format("{} has {}, but {} has {}", other.name, other.shape(), first.name, first.shape()),
      "recordings of the same layers and experts");
}

void require_sum(std::span<const Recording> recordings, const std::string& argument) {
  std::int64_t sum = 0;
  for (const Recording& each : recordings) {
    const auto loads = each.profile.loads();
    if (__builtin_add_overflow(sum, std::reduce(loads.begin(), loads.end(), std::int64_t{0}), &sum))
      throw InvalidArgument(argument,
                            fmt::format("the loads up to those of {} add up to more than 2^63-1", each.name),
                            "recordings whose loads are at most 2^63-1 together");
  }
}

}  // namespace

std::vector<Recording> read_recordings(const std::vector<std::string>& paths, const ReadOptions& options,
                                       const std::string& argument) {
  std::vector<Recording> all;
  std::size_t numbered = 0;  // the first recording with layer numbers
  for (const std::string& path : paths) {
    Recording one = read_recording(path, options);
    for (const std::size_t i : {std::size_t{0}, numbered})
      if (i < all.size()) require_same_model(all[i], one, argument);
    if (numbered < all.size() && !all[numbered].layers().known()) numbered = all.size();
    all.push_back(std::move(one));
  }
  require_sum(all, argument);
  return all;
}

Recording read_recording_of_some_layers(const std::string& path, const ReadOptions& options) {
  if (!options.layers) return read_recording(path, options);
  ReadOptions without = options;
  without.layers.reset();
  try {
    Recording recording = read_recording(path, without);
    RoutingProfile& profile = recording.profile;
    const std::int64_t named = std::ssize(*options.layers);
    // The model's config may have given the rows other numbers.
    if (options.model && profile.num_layers() == named) return read_recording(path, options);
    if (!profile.layers().known() && profile.num_layers() == named)
      profile.set_layers(LayerNumbers(*options.layers, "moe_layers"));
    if (profile.layers().known() || profile.num_layers() <= named) return recording;
  } catch (const InvalidArgument&) {
    // The reader needs the layers' numbers; the call below passes them.
  }
  return read_recording(path, options);
}

Recording read_recording_of_steps(const std::string& path, ReadOptions options) {
  options.count = ReadOptions::Count::nothing;
  options.steps = ReadOptions::Steps::kept;
  Recording recording = read_recording(path, options);
  if (!recording.trace && options.step_tokens)
    throw InvalidArgument("step_tokens", fmt::format("applies only to traces, and {} has counts", path),
                          "to leave it out");
  if (recording.steps.empty() && recording.trace)
    throw InvalidArgument("step_tokens",
                          fmt::format("is not given, and {} is a trace that does not say its steps", path),
                          "how many tokens a step has");
  if (recording.steps.empty())
    throw InvalidArgument("steps", fmt::format("{} does not say its steps", path),
                          "counts by step (an array [steps, layers, experts], a column or key 'step', a "
                          "recording of forward passes), or a trace and --step-tokens");
  recording.profile = recording.steps.front();
  for (const RoutingProfile& step : std::span(recording.steps).subspan(1)) recording.profile.add(step);
  return recording;
}

}  // namespace evenkeel
