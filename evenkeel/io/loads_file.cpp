#include "evenkeel/io/loads_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/loads_json.h"
#include "evenkeel/io/internal/profile_json.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/profile_file.h"

namespace evenkeel {

namespace {

using internal::Json;

// What a file says of itself besides must be true.
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

Counts counts_of_profile(const RoutingProfile& profile, const LoadsOptions& options,
                         const std::string& file) {
  if (!options.layer && profile.num_layers() > 1)
    throw InvalidArgument(
        "layer", fmt::format("{} has {} layers, and loads of one are needed", file, profile.num_layers()),
        fmt::format("0..{}", profile.num_layers() - 1));
  return counts_of_loads(profile.loads(LayerId(options.layer.value_or(0))), options, file);
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
  const Counts counts = rows != json.end() ? counts_of_rows(*rows, options, file)
                                           : counts_of_loads(internal::integers(*loads, file, "loads"),
                                                             with_ranks_of(json, options, file), file);
  require_said(json, "num_experts", counts.num_experts(), file);
  require_said(json, "num_ranks", counts.num_ranks(), file);
  return counts;
}

Counts read_loads(const std::string& path, const LoadsOptions& options) {
  return read_loads(open_source(path), options);
}

Counts read_loads(std::shared_ptr<const ByteSource> source, const LoadsOptions& options) {
  const std::string file = source->name();
  if (detect_format(*source) == FileFormat::json)
    return internal::counts_of_json(internal::read_json(*source), options, file);
  return counts_of_profile(read_profile(std::move(source)), options, file);
}

}  // namespace evenkeel
