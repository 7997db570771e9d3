#include "evenkeel/io/loads_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/known_content.h"
#include "evenkeel/io/internal/loads_json.h"
#include "evenkeel/io/internal/profile_json.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

namespace {

using internal::Json;

// A number that a file states about itself must be true.
void require_said(const Json& json, const char* key, std::int64_t number, const std::string& file) {
  const auto said = json.find(key);
  if (said != json.end() && internal::integer(*said, file, key) != number)
    throw ParseError(file, key, fmt::format("is {}, but there are {}", said->dump(), number));
}

LoadsOptions with_ranks_of(const Json& json, LoadsOptions options, const std::string& file) {
  if (const auto ranks = json.find("num_ranks"); ranks != json.end() && !options.num_ranks)
    options.num_ranks = internal::small_integer(*ranks, 1, max_ranks, file, "num_ranks");
  return options;
}

int ranks_of(const LoadsOptions& options, const std::string& file) {
  if (!options.num_ranks)
    throw InvalidArgument("ranks", fmt::format("{} does not say how many there are", file), "1 or more");
  if (*options.num_ranks < 1)
    throw InvalidArgument("ranks", fmt::format("{} ranks", *options.num_ranks), "1 or more");
  return *options.num_ranks;
}

Counts counts_of_loads(std::span<const std::int64_t> loads, const LoadsOptions& options,
                       const std::string& file) {
  if (loads.empty()) throw ParseError(file, "loads", "is empty");
  internal::require_loads(loads, file, "loads");
  return Counts::of_loads(loads, ranks_of(options, file));
}

// The row of the layer asked for, or the only one.
LayerId row_of(const RoutingProfile& profile, const LoadsOptions& options, const std::string& file) {
  const LayerNumbers& layers = profile.layers();
  const std::string all = layers.known() ? to_text(layers) : fmt::format("0..{}", profile.num_layers() - 1);
  if (!options.layer) {
    if (profile.num_layers() == 1) return LayerId(0);
    throw InvalidArgument(
        "layer", fmt::format("{} has {} layers, and loads of one are needed", file, profile.num_layers()),
        all);
  }
  const auto row = layers.row_of(*options.layer, profile.num_layers());
  if (!row) throw InvalidArgument("layer", fmt::format("no layer {}", *options.layer), all);
  return LayerId(*row);
}

Counts counts_of_profile(const RoutingProfile& profile, const LoadsOptions& options,
                         const std::string& file) {
  return counts_of_loads(profile.loads(row_of(profile, options, file)), options, file);
}

Counts counts_of_rows(const Json& rows, const LoadsOptions& options, const std::string& file) {
  const IntArray counts = internal::nested_integers(rows, 2, file, "counts");
  if (counts.shape[0] < 1 || counts.shape[1] < 1)
    throw ParseError(file, "counts", "is empty; it is a list by source rank of lists by expert");
  if (options.num_ranks && *options.num_ranks != counts.shape[0])
    throw InvalidArgument(
        "ranks", fmt::format("{} ranks, but {} has counts of {}", *options.num_ranks, file, counts.shape[0]),
        fmt::format("{}, or leave it out", counts.shape[0]));
  internal::require_loads(counts.values, file, "counts");
  Counts made(static_cast<int>(counts.shape[0]), static_cast<int>(counts.shape[1]));
  std::copy(counts.values.begin(), counts.values.end(), made.rows().begin());
  made.sum_loads();
  return made;
}

}  // namespace

Counts internal::counts_of_json(const Json& json, const LoadsOptions& options, const std::string& file) {
  if (!json.is_object()) throw ParseError(file, "", "is not a JSON object with \"loads\" or \"counts\"");
  const auto loads = json.find("loads");
  const auto rows = json.find("counts");
  if (loads == json.end() && rows == json.end())
    throw ParseError(file, "", "has neither \"loads\" nor \"counts\"");
  if (loads != json.end() && rows != json.end())
    throw ParseError(file, "", "has \"loads\" and \"counts\", of which one would be passed over");
  if (loads != json.end() && loads->is_array() && !loads->empty() && loads->front().is_array())
    return counts_of_profile(internal::profile_of_json(json, file), options, file);
  if (json.contains("layers"))
    throw ParseError(file, "layers",
                     "says that these are counts by layer, but \"counts\" are by rank of one step; name them "
                     "\"loads\", by layer and expert");
  const Counts counts = rows != json.end() ? counts_of_rows(*rows, options, file)
                                           : counts_of_loads(internal::integers(*loads, file, "loads"),
                                                             with_ranks_of(json, options, file), file);
  require_said(json, "num_experts", counts.num_experts(), file);
  require_said(json, "num_ranks", counts.num_ranks(), file);
  return counts;
}

namespace {

// One layer of whatever holds routing.
StepLoads step_of(RoutingFile file, const LoadsOptions& options, const std::string& name) {
  const RoutingProfile profile = profile_of(file, {.transitions = false});
  return {.counts = counts_of_profile(profile, options, name),
          .layers = profile.layers(),
          .num_layers = profile.num_layers(),
          .notes = std::move(file.notes)};
}

RoutingOptions without_transitions(const LoadsOptions& options) {
  RoutingOptions how = options.routing;
  how.transitions = false;
  return how;
}

// JSON of one step, which has no layers.
bool is_one_step(const Json& json) {
  const auto loads = json.find("loads");
  return loads == json.end() || !loads->is_array() || loads->empty() || !loads->front().is_array();
}

}  // namespace

StepLoads read_step_loads(const std::string& path, const LoadsOptions& options) {
  std::error_code unknown;  // what cannot be looked at, open_source() names
  if (!std::filesystem::is_directory(path, unknown)) return read_step_loads(open_source(path), options);
  return step_of(open_routing(path, without_transitions(options)), options, path);
}

StepLoads read_step_loads(std::shared_ptr<const ByteSource> source, const LoadsOptions& options) {
  const std::string file = source->name();
  const internal::Content content = internal::detect_content(source);
  if (content == internal::Content::loads || content == internal::Content::unknown) {
    if (detect_format(*source) == FileFormat::json) {
      const internal::JsonDocument json = internal::read_json(*source);
      if (is_one_step(json)) return {.counts = internal::counts_of_json(json, options, file), .layers = {}};
    }
  }
  return step_of(internal::open_routing_known(content, std::move(source), without_transitions(options)),
                 options, file);
}

Counts read_loads(const std::string& path, const LoadsOptions& options) {
  return read_step_loads(path, options).counts;
}

Counts read_loads(std::shared_ptr<const ByteSource> source, const LoadsOptions& options) {
  return read_step_loads(std::move(source), options).counts;
}

}  // namespace evenkeel
