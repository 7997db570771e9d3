#include "evenkeel/io/routing_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/count_lines.h"
#include "evenkeel/io/count_matrix.h"
#include "evenkeel/io/internal/array_trace.h"
#include "evenkeel/io/internal/bare_array.h"
#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/loads_json.h"
#include "evenkeel/io/internal/moe_layers.h"
#include "evenkeel/io/loads_file.h"
#include "evenkeel/io/megatron.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/sglang.h"
#include "evenkeel/io/trace_file.h"
#include "evenkeel/io/trtllm.h"
#include "evenkeel/io/vllm_statistics.h"

namespace evenkeel {

using namespace internal;

namespace {

using Sources = std::vector<ByteSource>;

RoutingFile open_arrays(const ByteSource& source, const RoutingOptions& options) {
  const auto file = open_array_file(source);
  RoutingFile routing{
      .what = "trace", .format = std::string(name_of(file->format())), .trace = nullptr, .profile = {}};
  if (file->find("loads") != nullptr) {
    if (file->find("topk_ids") != nullptr)
      throw ParseError(source.name(), "", "has loads and topk_ids, of which one would be passed over");
    routing.what = "profile";
    routing.profile = read_profile(source);
    return routing;
  }
  const bool named = file->find("topk_ids") != nullptr || file->find("routed_experts") != nullptr;
  if (!named) {
    if (is_trtllm_statistics(*file)) return open_trtllm_statistics({source}, nullptr);
    if (const ArrayInfo* counts = find_counts(*file)) return open_count_array(*file, counts->name);
    if (file->arrays().size() == 1) {
      const ArrayInfo& only = file->arrays().front();
      if (bare_array_kind(*file->reader(only.name), options, file->name()) == BareArray::counts)
        return open_count_array(*file, only.name);
      require_layer_order(only.shape, file->name(), only.name);
    }
  }
  routing.trace = open_trace(source, {.num_experts = options.num_experts});
  return routing;
}

// A profile in JSON, or the loads of one step, which are a profile of one layer.
RoutingFile open_loads(const ByteSource& source) {
  const JsonDocument json = read_json(source);
  RoutingFile routing{.what = "loads", .format = "json", .trace = nullptr, .profile = {}};
  if (has_layers(json)) {
    routing.what = "profile";
    routing.profile = profile_of_json(json, source.name());
    return routing;
  }
  LoadsOptions options;
  // Nothing is kept of ranks.
  if (!json.contains("counts") && !json.contains("num_ranks")) options.num_ranks = 1;
  const Counts& step = routing.step.emplace(counts_of_json(json, options, source.name()));
  routing.profile = RoutingProfile(1, step.num_experts(), {step.loads().begin(), step.loads().end()}, {});
  return routing;
}

RoutingFile open_by_content(Content content, const ByteSource& source, const RoutingOptions& options) {
  switch (content) {
    case Content::sglang_recording:
      return open_sglang_recording({source}, options);
    case Content::megatron_trace:
      return open_megatron_trace({source}, options.num_experts.value_or(0));
    case Content::counts:
      return open_count_text(source, options);
    case Content::count_lines:
      return open_count_lines(source, options);
    case Content::vllm_statistics:
      return open_vllm_statistics(source, options);
    case Content::loads:
      return open_loads(source);
    case Content::vllm_placement:
      if (find_vllm_records(source).statistics) return open_vllm_statistics(source, options);
      [[fallthrough]];
    case Content::placement:
    case Content::sglang_placement:
    case Content::vllm_ascend_placement:
    case Content::trtllm_placement:
      throw ParseError(source.name(), "", "is a placement, not routing");
    case Content::unknown:
      if (detect_format(source) == FileFormat::json) {
        read_json(source);  // which says where it is no JSON
        throw ParseError(source.name(), "",
                         "is JSON, but neither a placement nor a profile, loads or counts");
      }
      break;
    case Content::arrays:
      break;
  }
  return open_arrays(source, options);
}

Sources sources_in(const std::string& folder, std::string_view prefix, std::string_view suffix) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(suffix)) paths.push_back(entry->path().string());
  }
  if (error) throw ParseError(folder, "", "cannot be read: " + error.message());
  std::sort(paths.begin(), paths.end());
  Sources sources;
  for (const std::string& path : paths) sources.emplace_back(path);
  return sources;
}

RoutingFile open_folder(const std::string& folder, const RoutingOptions& options) {
  if (const Sources ranks = sources_in(folder, "router_trace_rank", ".jsonl"); !ranks.empty())
    return open_megatron_trace(ranks, options.num_experts.value_or(0));
  if (const Sources ranks = sources_in(folder, "rank", ".safetensors"); !ranks.empty()) {
    const Sources meta_info = sources_in(folder, "meta_info", ".json");
    return open_trtllm_statistics(ranks, meta_info.empty() ? nullptr : &meta_info.front());
  }
  if (const Sources recordings = sources_in(folder, "expert_distribution_recorder_", ".pt");
      !recordings.empty())
    return open_sglang_recording(recordings, options);
  throw ParseError(folder, "",
                   "is a folder without rank*.safetensors (TensorRT-LLM), router_trace_rank*.jsonl "
                   "(Megatron-LM) or expert_distribution_recorder_*.pt (SGLang)");
}

void require_possible(const RoutingOptions& options) {
  if (options.num_experts && (*options.num_experts < 1 || *options.num_experts > max_trace_experts))
    throw InvalidArgument("num_experts", fmt::format("{} experts", *options.num_experts),
                          fmt::format("1..{}", max_trace_experts));
}

// Counts say themselves how many experts there are.
void require_num_experts(const RoutingFile& routing, const RoutingOptions& options) {
  if (routing.profile && options.num_experts && *options.num_experts != routing.profile->num_experts())
    throw InvalidArgument("num_experts",
                          fmt::format("{}, but the file has counts of {}", *options.num_experts,
                                      routing.profile->num_experts()),
                          fmt::format("{}, or leave it out", routing.profile->num_experts()));
}

// The layers that options say rows may be: with a model also those of multi-token prediction.
std::vector<LayerNumbers> said_by(const RoutingOptions& options) {
  if (options.layers) return {LayerNumbers(*options.layers, "moe_layers")};
  if (!options.model) return {};
  return {LayerNumbers(options.model->moe_layers), LayerNumbers(options.model->all_layers())};
}

// A trace of all hidden layers, of which some have experts: those alone.
void take_said_layers(RoutingFile& routing, const RoutingOptions& options) {
  const TraceInfo& info = routing.trace->info();
  for (const LayerNumbers& said : said_by(options)) {
    if (!said.known() || info.layers.known() || std::ssize(said.numbers()) >= info.num_layers ||
        said.numbers().back() >= info.num_layers)
      continue;
    routing.trace = layers_of_trace(std::move(routing.trace), said);
    return;
  }
}

// Rows that are all hidden layers, of which these have experts: none else may have a load.
bool take_rows(const RoutingProfile& all, const LayerNumbers& said, RoutingFile& routing) {
  if (all.has_transitions() || said.numbers().back() >= all.num_layers()) return false;
  std::vector<std::int64_t> loads;
  for (LayerId row : indices<LayerId>(all.num_layers())) {
    const auto of_row = all.loads(row);
    const bool wanted = said.row_of(row.value(), all.num_layers()).has_value();
    if (!wanted && std::ranges::any_of(of_row, [](std::int64_t load) { return load > 0; })) return false;
    if (wanted) loads.insert(loads.end(), of_row.begin(), of_row.end());
  }
  routing.profile =
      RoutingProfile(static_cast<int>(said.numbers().size()), all.num_experts(), std::move(loads), {});
  routing.profile->set_layers(said);
  routing.kept_rows = said.numbers();
  return true;
}

// Whoever says which layers have experts knows better than rows without load do.
bool take_said_rows(RoutingFile& routing, const RoutingOptions& options) {
  if (!routing.profile || (routing.layers().known() && !routing.all_rows)) return false;
  const RoutingProfile all = routing.all_rows ? *routing.all_rows : *routing.profile;
  const std::vector<LayerNumbers> may_be = said_by(options);
  if (std::ranges::find(may_be, routing.layers()) != may_be.end()) return false;  // as the rows say it
  for (const LayerNumbers& said : may_be) {
    if (!said.known()) continue;
    const bool as_many = std::ssize(said.numbers()) == all.num_layers();
    if (as_many) {
      routing.profile = all;
      routing.profile->set_layers(said);
      routing.kept_rows.clear();
    }
    if (as_many || take_rows(all, said, routing)) {
      forget_dense_layers(routing.notes);
      return true;
    }
  }
  return false;
}

void name_layers(RoutingFile& routing, const RoutingOptions& options) {
  if (routing.trace) take_said_layers(routing, options);
  take_said_rows(routing, options);
  const int experts = routing.trace ? 0 : routing.profile->num_experts();  // of a trace they may be a guess
  const LayerNumbers said = said_layers(options.layers, options.model,
                                        {"the file", routing.layers(), routing.num_layers()}, experts);
  if (!said.known()) return;
  if (routing.trace) routing.trace->set_layers(said);
  if (routing.profile) routing.profile->set_layers(said);
}

// Rows without load amid others are dense layers, or have experts that nobody chose.
void require_rows_with_load(const RoutingFile& routing) {
  if (routing.layers().known() || routing.rows_without_load.size() < 2) return;
  const LayerNumbers empty(routing.rows_without_load);
  throw InvalidArgument(
      "moe_layers",
      fmt::format(
          "is not given; rows {} of the {} have no assignment: they may be dense layers, or layers whose "
          "experts nobody chose",
          to_text(empty), routing.num_layers()),
      fmt::format("the layers that have experts, such as {}, or the model's config.json",
                  fmt::format("0-{}", routing.num_layers() - 1)));
}

void require_as_told(RoutingOptions::Bare told, bool is_trace) {
  if (told == (is_trace ? RoutingOptions::Bare::counts : RoutingOptions::Bare::trace))
    throw InvalidArgument(
        "as", is_trace ? "counts, but the file has the tokens of a trace" : "trace, but the file has counts",
        "to leave it out");
}

}  // namespace

RoutingOptions::Bare parse_bare(const std::string& option, const std::string& text) {
  if (text.empty()) return RoutingOptions::Bare::ask;
  if (text == "counts") return RoutingOptions::Bare::counts;
  if (text == "trace") return RoutingOptions::Bare::trace;
  throw InvalidArgument(option, fmt::format("'{}'", text), "counts, trace");
}

RoutingFile open_routing(const ByteSource& source, const RoutingOptions& options) {
  require_possible(options);
  if (source.is_folder()) return completed(open_folder(source.name(), options), options);
  const Content content = detect_content(source);
  return open_routing_known(content, source, options);
}

namespace internal {

RoutingFile completed(RoutingFile routing, const RoutingOptions& options) {
  require_num_experts(routing, options);
  if (routing.trace) routing.notes = routing.trace->info().notes;
  name_layers(routing, options);
  require_rows_with_load(routing);
  require_as_told(options.bare, routing.trace != nullptr);
  if (!options.keep_steps) {
    std::vector<std::int64_t>().swap(routing.step_counts);
    routing.step_tokens.clear();
  }
  return routing;
}

RoutingFile open_routing_known(Content content, const ByteSource& source, const RoutingOptions& options) {
  require_possible(options);
  return completed(open_by_content(content, source, options), options);
}

}  // namespace internal

RoutingProfile profile_of(RoutingFile& file, const RoutingOptions& options) {
  if (file.profile && options.transitions) return *file.profile;
  if (file.profile) return file.profile->without_transitions();
  return profile_trace(*file.trace, {.transitions = options.transitions});
}

namespace {

std::vector<RoutingProfile> steps_of_counts(const RoutingFile& file) {
  const RoutingProfile& whole = *file.profile;
  const auto experts = static_cast<std::size_t>(whole.num_experts());
  const auto rows = static_cast<std::size_t>(file.rows_of_step);
  std::vector<RoutingProfile> steps;
  for (std::size_t at = 0; at < file.step_counts.size(); at += rows * experts) {
    std::vector<std::int64_t> loads;
    for (int layer = 0; layer < whole.num_layers(); ++layer) {
      const int row = file.kept_rows.empty() ? layer : file.kept_rows[static_cast<std::size_t>(layer)];
      const auto begin = file.step_counts.begin() +
                         static_cast<std::ptrdiff_t>(at + static_cast<std::size_t>(row) * experts);
      loads.insert(loads.end(), begin, begin + static_cast<std::ptrdiff_t>(experts));
    }
    steps.emplace_back(whole.num_layers(), whole.num_experts(), std::move(loads),
                       std::vector<std::int64_t>());
  }
  return steps;
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
  return step;
}

std::vector<RoutingProfile> windows_of(TraceReader& trace, std::int64_t tokens_per_step) {
  const std::int64_t num_tokens = trace.info().num_tokens;
  std::vector<RoutingProfile> steps;
  for (std::int64_t begin = 0; begin < num_tokens; begin += tokens_per_step) {
    const TokenRange range{begin, std::min(begin + tokens_per_step, num_tokens)};
    if (range.size() < tokens_per_step && !steps.empty()) break;
    steps.push_back(step_of(trace, {&range, 1}));
  }
  return steps;
}

}  // namespace

std::vector<RoutingProfile> steps_of(RoutingFile& file, std::optional<std::int64_t> tokens_per_step) {
  std::vector<RoutingProfile> steps;
  if (!file.trace) {
    if (!file.step_counts.empty()) steps = steps_of_counts(file);
  } else if (!tokens_per_step) {
    for (const auto& tokens : file.step_tokens) steps.push_back(step_of(*file.trace, tokens));
  } else if (*tokens_per_step < 1) {
    throw InvalidArgument("step_tokens", fmt::format("is {}", *tokens_per_step), "1 or more");
  } else {
    steps = windows_of(*file.trace, *tokens_per_step);
  }
  for (RoutingProfile& step : steps) step.set_layers(file.layers());
  return steps;
}

RoutingProfile read_routing(const std::string& path, const RoutingOptions& options) {
  RoutingFile file = open_routing(path, options);
  return profile_of(file, options);
}

}  // namespace evenkeel
