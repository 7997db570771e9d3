#include "evenkeel/io/internal/find_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/array_trace.h"
#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/nameless.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/table.h"
#include "evenkeel/io/internal/text.h"
#include "evenkeel/io/profile_file.h"

namespace evenkeel::internal {

namespace {

using Sources = std::vector<ByteSource>;

FoundRouting find_in_arrays(const ArrayFile& file, const ByteSource& source, const ReadOptions& options) {
  const bool has_ids = file.find("topk_ids") != nullptr || file.find("routed_experts") != nullptr;
  // If there are ids, "weight" may hold the tokens' top-k weights.
  const auto has = [&](std::string_view name) {
    return file.find(name) != nullptr && !(has_ids && name == "weight");
  };
  std::vector<std::string_view> names = {"topk_ids", "routed_experts", "loads"};
  names.insert(names.end(), count_names.begin(), count_names.end());
  const std::string name = only_of(names, has, file.name());
  if (name == "loads") {
    RoutingProfile profile = profile_of_arrays(file);
    require_experts_said(experts_said(file), profile.num_experts(), file.name());
    return {.kind = "profile", .format = {}, .content = FoundProfile{std::move(profile)}};
  }
  if (has_ids) {
    const ArrayInfo& ids = file.at(name);
    const std::string order = is_order_of_tokens(options.axes) ? options.axes : "";
    if (name == "routed_experts" && order.empty()) require_layer_order(ids.shape, file.name(), name);
    auto trace = open_trace_in(file, ids, {.num_experts = options.num_experts, .axes = order});
    FoundRouting found{.kind = "trace", .format = {}, .content = FoundTrace{std::move(trace)}};
    if (!order.empty()) found.set_axes(order);
    return found;
  }
  if (!name.empty()) {
    const ArrayInfo& counts = file.at(name);
    if (options.axes.empty()) require_layer_order(counts.shape, file.name(), name);
    FoundRouting found = named_counts(file, counts, rows_of(name), options);
    FoundCounts& rows = std::get<FoundCounts>(found.content);
    rows.layers = layers_in(file, rows.num_rows);
    require_experts_said(experts_said(file), rows.num_experts, file.name());
    return found;
  }
  if (is_ultra_ep_chunk(file)) return find_ultra_ep_chunk(file, options);
  if (is_trtllm_statistics(file)) return find_trtllm_statistics({source}, nullptr);
  if (file.arrays().size() == 1) return nameless(file, file.arrays().front(), options);
  throw parse_error(file.name(), "",
                    "has {} arrays, but none with a known name, such as topk_ids, counts or "
                    "physical_to_logical_map; rename one",
                    file.arrays().size());
}

FoundRouting find_in_array_file(const ByteSource& source, const ReadOptions& options) {
  const auto file = open_array_file(source);
  FoundRouting found = find_in_arrays(*file, source, options);
  if (found.format.empty()) found.format = name_of(file->format());
  return found;
}

std::vector<std::string> paths_in(const std::string& folder, std::string_view prefix,
                                  std::string_view suffix) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(suffix)) paths.push_back(entry->path().string());
  }
  if (error) throw ParseError(folder, "", "cannot be read: " + error.message());
  std::sort(paths.begin(), paths.end());
  return paths;
}

Sources sources_in(const std::string& folder, std::string_view prefix, std::string_view suffix) {
  const std::vector<std::string> paths = paths_in(folder, prefix, suffix);
  return {paths.begin(), paths.end()};
}

FoundRouting find_in_folder(const std::string& folder, const ReadOptions& options) {
  if (const Sources ranks = sources_in(folder, "router_trace_rank", ".jsonl"); !ranks.empty())
    return find_megatron_trace(ranks, options.num_experts);
  if (const Sources ranks = sources_in(folder, "rank", ".safetensors"); !ranks.empty()) {
    const Sources meta_info = sources_in(folder, "meta_info", ".json");
    return find_trtllm_statistics(ranks, meta_info.empty() ? nullptr : &meta_info.front());
  }
  if (const Sources recordings = sources_in(folder, "expert_distribution_recorder_", ".pt");
      !recordings.empty())
    return find_sglang_recording(recordings, options);
  const auto chunks = paths_in(folder, "epg", ".npz");
  const auto manifests = paths_in(folder, "epg", ".manifest.json");
  if (!chunks.empty() || !manifests.empty()) return find_ultra_ep_traces(folder, chunks, manifests, options);
  throw ParseError(
      folder, "",
      "is a folder without routing files: rank*.safetensors (TensorRT-LLM), router_trace_rank*.jsonl "
      "(Megatron-LM), expert_distribution_recorder_*.pt (SGLang) or epg*.npz (UltraEP)");
}

}  // namespace

std::string only_of(std::span<const std::string_view> names, const std::function<bool(std::string_view)>& has,
                    const std::string& file) {
  std::string found;
  for (std::string_view name : names) {
    if (!has(name)) continue;
    if (!found.empty())
      throw parse_error(file, std::string(name),
                        "is there as well as '{}', and either may be the routing; keep only one of them",
                        found);
    found = name;
  }
  return found;
}

std::optional<std::int64_t> experts_said(const ArrayFile& file) {
  if (file.find("num_experts") == nullptr) return std::nullopt;
  const IntArray said = read_integers(file, "num_experts");
  if (said.values.size() != 1)
    throw parse_error(file.name(), "num_experts", "shape {} is not one number", to_text(said.shape));
  return said.values.front();
}

void require_experts_said(std::optional<std::int64_t> said, std::int64_t there, const std::string& file) {
  if (said.value_or(there) != there)
    throw parse_error(file, "num_experts", "is {}, but the counts are of {} experts", *said, there);
}

FoundRouting find_routing(Content content, const ByteSource& source, const ReadOptions& options) {
  switch (content) {
    case Content::folder:
      return find_in_folder(source.name(), options);
    case Content::sglang_recording:
      return find_sglang_recording({source}, options);
    case Content::megatron_trace:
      return find_megatron_trace({source}, options.num_experts);
    case Content::json_counts:
      return find_in_json(read_json(source), source.name(), options);
    case Content::table:
      return find_in_table(without_mark(read_text(source, "text")), source.name(), options);
    case Content::count_lines:
      return find_count_lines(source, options);
    case Content::vllm_placement:
      if (!mentions(source, vllm_stats_type)) break;
      [[fallthrough]];
    case Content::vllm_statistics:
      return find_vllm_statistics(source, options);
    case Content::unknown:
      if (detect_format(source) == FileFormat::json) {
        read_json(source);  // throws if the text is not JSON, and says where
        throw ParseError(source.name(), "",
                         "is JSON, but neither a placement nor a profile, loads or counts");
      }
      [[fallthrough]];
    case Content::arrays:
      return find_in_array_file(source, options);
    case Content::placement:
    case Content::sglang_placement:
    case Content::vllm_ascend_placement:
    case Content::trtllm_placement:
      break;
  }
  throw ParseError(source.name(), "", "is a placement, not routing");
}

}  // namespace evenkeel::internal
