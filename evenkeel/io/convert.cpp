#include "evenkeel/io/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/trace_file.h"
#include "evenkeel/io/vllm_statistics.h"

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

void write_loads_json(const Counts& counts, const std::string& out) {
  nlohmann::json json = nlohmann::json::object();
  if (counts.has_sources()) {
    for (RankId rank : indices<RankId>(counts.num_ranks())) json["counts"].push_back(counts.row(rank));
  } else {
    json["loads"] = counts.loads();
  }
  write_file(out, json.dump() + "\n");
}

// Loads of one step stay what they are in JSON; elsewhere they are a profile of one layer.
void write_loads(const RoutingFile& routing, const std::string& out, FileFormat to) {
  require_format("loads", to, {FileFormat::json, FileFormat::safetensors, FileFormat::npz});
  if (to == FileFormat::json)
    write_loads_json(*routing.step, out);
  else
    write_profile(*routing.profile, out, to);
}

// The facts of a trace besides its ids, which npy has no place for.
std::string besides_ids(const TraceInfo& trace) {
  std::string all = fmt::format("that there are {} experts", trace.num_experts);
  if (trace.layers.known()) all += fmt::format(", that they are of layers {}", to_text(trace.layers));
  if (trace.has_weights) all += ", router weights";
  if (!trace.sequence_offsets.empty()) all += ", where sequences begin";
  return all;
}

Converted convert_routing(RoutingFile routing, const std::string& out, FileFormat to) {
  if (routing.trace) {
    require_format("a trace", to, {FileFormat::safetensors, FileFormat::npz, FileFormat::npy});
    write_trace(*routing.trace, out, to);
    if (to == FileFormat::npy)
      routing.notes.push_back(
          fmt::format("npy holds ids alone; not in {}: {}", out, besides_ids(routing.trace->info())));
  } else if (routing.step) {
    write_loads(routing, out, to);
  } else {
    require_format("a profile", to, {FileFormat::safetensors, FileFormat::npz, FileFormat::json});
    write_profile(*routing.profile, out, to);
  }
  return {std::move(routing.what), std::move(routing.format), std::string(name_of(to)), routing.layers(),
          std::move(routing.notes)};
}

void refuse(bool given, const char* option, const std::string& why) {
  if (given) throw InvalidArgument(option, why, "to leave it out");
}

// No option is ignored: what means nothing for routing is refused.
void require_routing_options(const ConvertOptions& options, const std::string& in) {
  if (options.to)
    throw InvalidArgument(
        "to", fmt::format("{} is a format of placements, and {} is none", name_of(*options.to), in),
        "a placement, or leave it out");
  const std::string why = fmt::format("is for placements, and {} is none", in);
  refuse(options.placement.num_ranks.has_value(), "ranks", why);
  refuse(options.placement.num_hidden_layers.has_value(), "num_hidden_layers", why);
  refuse(options.placement.layer_updates_per_iter.has_value(), "layer_updates_per_iter", why);
}

// Options for arrays, or for another format of placements than the one to write, are refused as well.
void require_placement_options(const ConvertOptions& options, PlacementFormat to, const std::string& in) {
  const char* counting = "is for formats that count the model's layers, sglang and trtllm";
  refuse(options.bare != RoutingOptions::Bare::ask, "as",
         fmt::format("is for arrays, and {} is a placement", in));
  refuse(options.placement.num_hidden_layers && !counts_model_layers(to), "num_hidden_layers",
         fmt::format("{}; {} does not", counting, name_of(to)));
  refuse(options.placement.layer_updates_per_iter && to != PlacementFormat::trtllm, "layer_updates_per_iter",
         fmt::format("is for trtllm, not for {}", name_of(to)));
}

Converted convert_placement(const ByteSource& source, PlacementFormat from, const std::string& out,
                            const ConvertOptions& options) {
  const std::string& in = source.name();
  const PlacementFormat to = options.to.value_or(PlacementFormat::evenkeel);
  require_placement_options(options, to, in);
  if (to == PlacementFormat::evenkeel)
    require_format("a placement", format_of_extension(out), {FileFormat::json});
  PlacementFormatOptions how = options.placement;
  if (!how.num_experts) how.num_experts = options.num_experts;
  const PlacementFile file = read_placement_known(from, source, how);
  std::vector<std::string> notes = write_placement_as(to, file, how, out);
  return {"placement", std::string(name_of(from)), std::string(name_of(to)), file.placement.layers(),
          std::move(notes)};
}

}  // namespace

Converted convert_file(const std::string& in, const std::string& out, const ConvertOptions& options) {
  const ByteSource source(in);
  const auto content = source.is_folder() ? Content::unknown : detect_content(source);
  if (content == Content::vllm_placement && !options.to && find_vllm_records(source).statistics)
    throw InvalidArgument("to", fmt::format("{} has a placement and load statistics", in),
                          "the format of a placement; for the statistics keep their lines alone in a file");
  if (const auto from = placement_format_of(content)) return convert_placement(source, *from, out, options);
  require_routing_options(options, in);
  const FileFormat to = format_of_extension(out);
  const RoutingOptions how{.num_experts = options.num_experts,
                           .layers = options.placement.layers,
                           .model = options.placement.model,
                           .bare = options.bare};
  RoutingFile routing =
      source.is_folder() ? open_routing(source, how) : open_routing_known(content, source, how);
  return convert_routing(std::move(routing), out, to);
}

}  // namespace evenkeel
