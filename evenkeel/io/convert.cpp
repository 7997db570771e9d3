#include "evenkeel/io/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/nameless.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/text.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/trace_file.h"

namespace evenkeel {

using namespace internal;

namespace {

FileFormat format_of_extension(const std::string& path) {
  for (FileFormat format : {FileFormat::safetensors, FileFormat::npz, FileFormat::npy, FileFormat::json})
    if (path.ends_with(fmt::format(".{}", name_of(format)))) return format;
  throw InvalidArgument("output", fmt::format("the extension of '{}' names no format", path),
                        ".safetensors, .npz, .npy, .json");
}

void require_format(const char* what, FileFormat format, std::initializer_list<FileFormat> allowed) {
  if (std::find(allowed.begin(), allowed.end(), format) != allowed.end()) return;
  std::string names;
  for (FileFormat one : allowed) names += fmt::format("{}.{}", names.empty() ? "" : ", ", name_of(one));
  throw InvalidArgument("output", fmt::format("{} cannot be written as {}", what, name_of(format)), names);
}

// In JSON, loads of one step stay loads or counts; in other formats they become a profile of one layer.
void write_loads(const Recording& recording, const std::string& out, FileFormat to) {
  require_format("loads", to, {FileFormat::json, FileFormat::safetensors, FileFormat::npz});
  if (to != FileFormat::json) return write_profile(recording.profile, out, to);
  nlohmann::json json = nlohmann::json::object();
  const std::span<const std::int64_t> by_source = recording.by_source;
  const auto experts = static_cast<std::size_t>(recording.profile.num_experts());
  for (std::size_t at = 0; at < by_source.size(); at += experts)
    json["counts"].push_back(by_source.subspan(at, experts));
  if (by_source.empty()) json["loads"] = recording.profile.loads();
  write_file(out, json.dump() + "\n");
}

// The parts of a trace that npy cannot hold: all but the ids.
std::string besides_ids(const TraceInfo& trace) {
  std::string all = fmt::format("the number of experts ({})", trace.num_experts);
  if (trace.layers.known()) all += fmt::format(", the layer numbers ({})", to_text(trace.layers));
  if (trace.has_weights) all += ", router weights";
  if (!trace.sequence_offsets.empty()) all += ", where sequences begin";
  return all;
}

Converted convert_routing(Recording recording, const std::string& out, FileFormat to) {
  if (recording.trace) {
    require_format("a trace", to, {FileFormat::safetensors, FileFormat::npz, FileFormat::npy});
    write_trace(*recording.trace, out, to);
    if (to == FileFormat::npy)
      recording.notes.push_back(
          fmt::format("npy holds only ids; left out of {}: {}", out, besides_ids(recording.trace->info())));
  } else if (recording.kind == "loads") {
    write_loads(recording, out, to);
  } else {
    require_format("a profile", to, {FileFormat::safetensors, FileFormat::npz, FileFormat::json});
    write_profile(recording.profile, out, to);
  }
  return {std::move(recording.kind), std::move(recording.format), std::string(name_of(to)),
          recording.layers(),        std::move(recording.notes),  std::move(recording.axes)};
}

void refuse(bool given, const char* option, const std::string& why) {
  if (given) throw InvalidArgument(option, why, "to leave it out");
}

// Options without effect on routing are refused, not ignored.
void require_routing_options(const ConvertOptions& options, const std::string& in) {
  if (options.to)
    throw InvalidArgument(
        "to", fmt::format("{} is a placement format, but {} is not a placement", name_of(*options.to), in),
        "to leave it out, or a placement as input");
  const std::string why = fmt::format("applies only to placements, and {} is not a placement", in);
  refuse(options.placement.num_ranks.has_value(), "ranks", why);
  refuse(options.placement.num_hidden_layers.has_value(), "num_hidden_layers", why);
  refuse(options.placement.layer_updates_per_iter.has_value(), "layer_updates_per_iter", why);
}

// Refuses options for arrays, and options for placement formats other than `to`.
void require_placement_options(const ConvertOptions& options, PlacementFormat to, const std::string& in) {
  const char* counting = "applies only to the formats sglang and trtllm";
  const std::string& axes = options.reading.axes;
  refuse(!axes.empty(), is_short_form(axes) ? "as" : "axes",
         fmt::format("applies only to arrays, and {} is a placement", in));
  refuse(!options.reading.columns.empty(), "columns",
         fmt::format("applies only to tables, and {} is a placement", in));
  refuse(options.placement.num_hidden_layers && !counts_model_layers(to), "num_hidden_layers",
         fmt::format("{}, not to {}", counting, name_of(to)));
  refuse(options.placement.layer_updates_per_iter && to != PlacementFormat::trtllm, "layer_updates_per_iter",
         fmt::format("applies only to format trtllm, not to {}", name_of(to)));
}

Converted convert_placement(const ByteSource& source, PlacementFormat from, const std::string& out,
                            const ConvertOptions& options) {
  const std::string& in = source.name();
  const PlacementFormat to = options.to.value_or(PlacementFormat::evenkeel);
  require_placement_options(options, to, in);
  if (to == PlacementFormat::evenkeel)
    require_format("a placement", format_of_extension(out), {FileFormat::json});
  PlacementFormatOptions how = options.placement;
  if (!how.num_experts) how.num_experts = options.reading.num_experts;
  const PlacementFile file = read_placement_known(from, source, how);
  std::vector<std::string> notes = write_placement_as(to, file, how, out);
  return {"placement", std::string(name_of(from)), std::string(name_of(to)), file.placement.layers(),
          std::move(notes)};
}

}  // namespace

Converted convert_file(const std::string& in, const std::string& out, const ConvertOptions& options) {
  const ByteSource source(in);
  const ModeOfSources mode({in});
  const Content content = detect_content(source);
  if (content == Content::vllm_placement && !options.to && mentions(source, vllm_stats_type))
    throw InvalidArgument("to",
                          fmt::format("is not given, and {} has both a placement and load statistics", in),
                          "a placement format, for the placement; for the statistics, leave it out and give "
                          "a file with only their lines");
  if (const auto from = placement_format_of(content)) return convert_placement(source, *from, out, options);
  require_routing_options(options, in);
  const FileFormat to = format_of_extension(out);
  ReadOptions how = options.reading;
  how.layers = options.placement.layers;
  how.model = options.placement.model;
  how.count = ReadOptions::Count::nothing;  // a trace is not counted, it stays a trace
  return convert_routing(read_recording_known(content, source, how), out, to);
}

}  // namespace evenkeel
