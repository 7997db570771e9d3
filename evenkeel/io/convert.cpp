#include "evenkeel/io/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/loads_file.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/trace_file.h"

namespace evenkeel {

namespace {

using internal::Json;

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
  Json json = Json::object();
  if (counts.has_sources()) {
    for (RankId rank : indices<RankId>(counts.num_ranks())) json["counts"].push_back(counts.row(rank));
  } else {
    json["loads"] = counts.loads();
  }
  AtomicFile file(out);
  file.write(json.dump() + "\n");
  file.commit();
}

// Loads of one step stay what they are in JSON; elsewhere they are a profile of one layer.
Converted convert_loads(std::shared_ptr<const ByteSource> source, const std::string& out, FileFormat to,
                        const RoutingFile& routing) {
  require_format("loads", to, {FileFormat::json, FileFormat::safetensors, FileFormat::npz});
  if (to == FileFormat::json) {
    LoadsOptions options;
    if (!internal::read_json(*source).contains("counts"))
      options.num_ranks = 1;  // of which nothing is written
    write_loads_json(read_loads(std::move(source), options), out);
  } else {
    write_profile(*routing.profile, out, to);
  }
  return {"loads", "json", std::string(name_of(to)), {}};
}

Converted convert_placement(std::shared_ptr<const ByteSource> source, PlacementFormat from,
                            const std::string& out, const ConvertOptions& options) {
  const PlacementFormat to = options.to.value_or(PlacementFormat::evenkeel);
  if (to == PlacementFormat::evenkeel)
    require_format("a placement", format_of_extension(out), {FileFormat::json});
  PlacementFormatOptions how = options.placement;
  if (!how.num_experts) how.num_experts = options.num_experts;
  write_placement_as(to, read_placement_as(std::move(source), how), how, out);
  return {"placement", std::string(name_of(from)), std::string(name_of(to)), {}};
}

Converted convert_routing(RoutingFile routing, const std::string& out, FileFormat to) {
  if (routing.trace) {
    require_format("a trace", to, {FileFormat::safetensors, FileFormat::npz, FileFormat::npy});
    write_trace(*routing.trace, out, to);
  } else {
    require_format("a profile", to, {FileFormat::safetensors, FileFormat::npz, FileFormat::json});
    write_profile(*routing.profile, out, to);
  }
  return {std::move(routing.what), std::move(routing.format), std::string(name_of(to)),
          std::move(routing.layers)};
}

}  // namespace

Converted convert_file(const std::string& in, const std::string& out, const ConvertOptions& options) {
  const RoutingOptions how{.num_experts = options.num_experts, .bare = options.bare};
  if (std::filesystem::is_directory(in))
    return convert_routing(open_routing(in, how), out, format_of_extension(out));
  auto source = open_source(in);
  if (const auto from = detect_placement_format(source))
    return convert_placement(std::move(source), *from, out, options);
  if (options.to)
    throw InvalidArgument(
        "to", fmt::format("{} is a format of placements, and {} is none", name_of(*options.to), in),
        "a placement, or leave it out");
  const FileFormat to = format_of_extension(out);
  RoutingFile routing = open_routing(source, how);
  if (routing.what == "loads") return convert_loads(std::move(source), out, to, routing);
  return convert_routing(std::move(routing), out, to);
}

}  // namespace evenkeel
