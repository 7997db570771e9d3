#include "evenkeel/io/profile_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/profile_json.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel {

namespace {

void require_format(const ArrayFile& file) {
  const auto format = file.metadata().find("format");
  if (format != file.metadata().end() && format->second.starts_with("evenkeel.") &&
      format->second != internal::kProfileFormat)
    throw ParseError(file.name(), "format",
                     fmt::format("is {}, not {}", format->second, internal::kProfileFormat));
}

RoutingProfile loads_and_transitions(const ArrayFile& file) {
  IntArray loads = read_integers(file, "loads");
  if (loads.shape.size() != 2 || loads.shape[0] < 1 || loads.shape[1] < 1 ||
      loads.shape[1] > max_trace_experts || loads.shape[0] > max_trace_assignments_per_token)
    throw ParseError(file.name(), "loads",
                     fmt::format("shape {} is not [layers, experts]", internal::to_text(loads.shape)));
  internal::require_loads(loads.values, file.name(), "loads");
  const std::int64_t layers = loads.shape[0];
  const std::int64_t experts = loads.shape[1];
  if (file.find("transitions") == nullptr)
    return internal::make_profile(file.name(), std::move(loads), std::nullopt);
  IntArray transitions = read_integers(file, "transitions");
  if (transitions.shape != std::vector<std::int64_t>{layers - 1, experts, experts})
    throw ParseError(file.name(), "transitions",
                     fmt::format("shape {} is not [layers - 1, experts, experts], {}",
                                 internal::to_text(transitions.shape),
                                 internal::to_text(std::vector<std::int64_t>{layers - 1, experts, experts})));
  return internal::make_profile(file.name(), std::move(loads), std::move(transitions));
}

RoutingProfile profile_of_arrays(const ArrayFile& file) {
  require_format(file);
  RoutingProfile profile = loads_and_transitions(file);
  profile.set_layers(internal::layers_in(file, profile.num_layers()));
  return profile;
}

nlohmann::json rows(std::span<const std::int64_t> values, std::size_t width) {
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t at = 0; at < values.size(); at += width) list.push_back(values.subspan(at, width));
  return list;
}

void write_profile_json(const RoutingProfile& profile, const std::string& path) {
  const std::size_t experts = static_cast<std::size_t>(profile.num_experts());
  nlohmann::json json{{"format", internal::kProfileFormat},
                      {"num_layers", profile.num_layers()},
                      {"num_experts", profile.num_experts()},
                      {"loads", rows(profile.loads(), experts)}};
  if (profile.layers().known()) json["layers"] = profile.layers().numbers();
  if (profile.has_transitions()) {
    json["transitions"] = nlohmann::json::array();
    for (int layer = 0; layer + 1 < profile.num_layers(); ++layer)
      json["transitions"].push_back(rows(profile.transitions(LayerId(layer)), experts));
  }
  AtomicFile file(path);
  file.write(json.dump() + "\n");
  file.commit();
}

}  // namespace

RoutingProfile read_profile(const std::string& path) {
  return read_profile(open_source(path));
}

RoutingProfile read_profile(std::shared_ptr<const ByteSource> source) {
  if (detect_format(*source) == FileFormat::json)
    return internal::profile_of_json(internal::read_json(*source), source->name());
  return profile_of_arrays(*open_array_file(std::move(source)));
}

void write_profile(const RoutingProfile& profile, const std::string& path, FileFormat format) {
  if (format == FileFormat::json) return write_profile_json(profile, path);
  if (format == FileFormat::npy)
    throw InvalidArgument(path, "a profile is not written as npy", "safetensors, npz or json");
  const std::int64_t layers = profile.num_layers();
  const std::int64_t experts = profile.num_experts();
  std::vector<internal::ArrayToWrite> arrays{
      internal::integers_to_write("loads", {layers, experts}, profile.loads())};
  if (profile.has_transitions())
    arrays.push_back(
        internal::integers_to_write("transitions", {layers - 1, experts, experts}, profile.transitions()));
  if (profile.layers().known()) arrays.push_back(internal::layers_to_write(profile.layers()));
  internal::write_arrays(arrays, {{"format", std::string(internal::kProfileFormat)}}, path, format);
}

}  // namespace evenkeel
