#include "evenkeel/io/loads_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/loads_json.h"
#include "evenkeel/io/internal/profile_json.h"
#include "evenkeel/io/profile_file.h"

namespace evenkeel {

namespace {

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

Counts counts_of_rows(const internal::Json& rows, const LoadsOptions& options, const std::string& file) {
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
  if (const auto rows = json.find("counts"); rows != json.end()) return counts_of_rows(*rows, options, file);
  const auto loads = json.find("loads");
  if (loads == json.end()) throw ParseError(file, "", "has neither \"loads\" nor \"counts\"");
  if (loads->is_array() && !loads->empty() && loads->front().is_array())
    return counts_of_profile(internal::profile_of_json(json, file), options, file);
  return counts_of_loads(internal::integers(*loads, file, "loads"), options, file);
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
