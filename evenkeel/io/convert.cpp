#include "evenkeel/io/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/profile_json.h"
#include "evenkeel/io/loads_file.h"
#include "evenkeel/io/placement_file.h"
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

Converted convert_arrays(std::shared_ptr<const ByteSource> source, const std::string& out, FileFormat to,
                         const ConvertOptions& options) {
  const auto file = open_array_file(source);
  const std::string from(name_of(file->format()));
  if (file->find("loads") != nullptr) {
    require_format("a profile", to, {FileFormat::safetensors, FileFormat::npz, FileFormat::json});
    write_profile(read_profile(std::move(source)), out, to);
    return {"profile", from, std::string(name_of(to))};
  }
  require_format("a trace", to, {FileFormat::safetensors, FileFormat::npz, FileFormat::npy});
  const auto trace = open_trace(std::move(source), {.num_experts = options.num_experts});
  write_trace(*trace, out, to);
  return {"trace", from, std::string(name_of(to))};
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

Converted convert_loads(std::shared_ptr<const ByteSource> source, bool by_rank, const std::string& out,
                        FileFormat to) {
  require_format("loads", to, {FileFormat::json, FileFormat::safetensors, FileFormat::npz});
  LoadsOptions options;
  if (!by_rank) options.num_ranks = 1;  // of which nothing is written
  const Counts counts = read_loads(std::move(source), options);
  if (to == FileFormat::json) {
    write_loads_json(counts, out);
  } else {
    const auto loads = counts.loads();
    write_profile(RoutingProfile(1, counts.num_experts(), {loads.begin(), loads.end()}, {}), out, to);
  }
  return {"loads", "json", std::string(name_of(to))};
}

Converted convert_json(std::shared_ptr<const ByteSource> source, const std::string& out, FileFormat to) {
  const Json json = internal::read_json(*source);
  const std::string file = source->name();
  if (json.is_object() && json.contains("physical_to_logical")) {
    require_format("a placement", to, {FileFormat::json});
    write_placement(read_placement(std::move(source)), out);
    return {"placement", "json", "json"};
  }
  const bool by_rank = json.is_object() && json.contains("counts");
  const bool loads = json.is_object() && json.contains("loads");
  if (!by_rank && !loads)
    throw ParseError(file, "", "is JSON, but neither a placement nor a profile, loads or counts");
  const Json* list = by_rank ? nullptr : &json["loads"];
  if (list != nullptr && list->is_array() && !list->empty() && list->front().is_array()) {
    require_format("a profile", to, {FileFormat::safetensors, FileFormat::npz, FileFormat::json});
    write_profile(internal::profile_of_json(json, file), out, to);
    return {"profile", "json", std::string(name_of(to))};
  }
  return convert_loads(std::move(source), by_rank, out, to);
}

}  // namespace

Converted convert_file(const std::string& in, const std::string& out, const ConvertOptions& options) {
  const FileFormat to = format_of_extension(out);
  auto source = open_source(in);
  if (detect_format(*source) == FileFormat::json) return convert_json(std::move(source), out, to);
  return convert_arrays(std::move(source), out, to, options);
}

}  // namespace evenkeel
