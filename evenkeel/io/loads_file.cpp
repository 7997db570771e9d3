#include "evenkeel/io/loads_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/loads_json.h"
#include "evenkeel/io/internal/number_lists.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

using namespace internal;

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
  if (loads.size() > max_experts)
    throw parse_error(file, "loads", "has {} experts; allowed: 1..{}", loads.size(), max_experts);
  require_loads(loads, file, "loads");
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

Counts counts_of_rows(const JsonField& rows, const LoadsOptions& options) {
  const std::string& file = rows.file();
  const IntArray counts = nested_integers(*rows, 2, file, "counts");
  if (counts.shape[0] < 1 || counts.shape[1] < 1)
    rows.fail("is empty; it is a list by source rank of lists by expert");
  if (counts.shape[0] > max_ranks || counts.shape[1] > max_experts)
    rows.fail("is of {} ranks and {} experts; allowed: 1..{} and 1..{}", counts.shape[0], counts.shape[1],
              max_ranks, max_experts);
  if (options.num_ranks && *options.num_ranks != counts.shape[0])
    throw InvalidArgument(
        "ranks", fmt::format("{} ranks, but {} has counts of {}", *options.num_ranks, file, counts.shape[0]),
        fmt::format("{}, or leave it out", counts.shape[0]));
  require_loads(counts.values, file, "counts");
  Counts made(static_cast<int>(counts.shape[0]), static_cast<int>(counts.shape[1]));
  std::ranges::copy(counts.values, made.rows().begin());
  made.sum_loads();
  return made;
}

// Loads of one step, by source rank or not.
Counts counts_of_step(const JsonField& json, LoadsOptions options) {
  if (const auto rows = json.find("counts")) return counts_of_rows(*rows, options);
  if (const auto ranks = json.find("num_ranks"); ranks && !options.num_ranks)
    options.num_ranks = ranks->integer(1, max_ranks);
  return counts_of_loads(json["loads"].integers(), options, json.file());
}

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

}  // namespace

Counts internal::counts_of_json(const Json& json, const LoadsOptions& options, const std::string& file) {
  if (!json.is_object()) throw ParseError(file, "", "is not a JSON object with \"loads\" or \"counts\"");
  if (!json.contains("loads") && !json.contains("counts"))
    throw ParseError(file, "", "has neither \"loads\" nor \"counts\"");
  if (json.contains("loads") && json.contains("counts"))
    throw ParseError(file, "", "has \"loads\" and \"counts\", of which one would be passed over");
  if (has_layers(json)) return counts_of_profile(profile_of_json(json, file), options, file);
  if (json.contains("layers"))
    throw ParseError(file, "layers",
                     "says that these are counts by layer, but \"counts\" are by rank of one step; name them "
                     "\"loads\", by layer and expert");
  const JsonField fields(json, file);
  const Counts counts = counts_of_step(fields, options);
  // Numbers that a file states about itself must be true.
  for (const auto& [key, number] :
       {std::pair{"num_experts", counts.num_experts()}, {"num_ranks", counts.num_ranks()}})
    if (const auto said = fields.find(key); said && said->integer() != number)
      said->fail("is {}, but there are {}", (*said)->dump(), number);
  return counts;
}

namespace {

// Of one step, which is a row without a number unless an option gives it one.
StepLoads step_of_json(const Json& json, const LoadsOptions& options, const std::string& file) {
  StepLoads step{.counts = counts_of_json(json, options, file), .layers = {}};
  const auto loads = step.counts.loads();
  RoutingFile routing{.what = "loads", .format = "json", .trace = nullptr, .profile = {}};
  routing.profile = RoutingProfile(1, step.counts.num_experts(), {loads.begin(), loads.end()}, {});
  routing = completed(std::move(routing), without_transitions(options));
  step.layers = routing.layers();
  if (step.layers.known()) row_of(*routing.profile, options, file);
  return step;
}

}  // namespace

StepLoads read_step_loads(const ByteSource& source, const LoadsOptions& options) {
  const std::string& file = source.name();
  if (source.is_folder()) return step_of(open_routing(source, without_transitions(options)), options, file);
  const Content content = detect_content(source);
  if (content == Content::loads || content == Content::unknown) {
    if (detect_format(source) == FileFormat::json) {
      const JsonDocument json = read_json(source);
      if (!has_layers(json)) return step_of_json(json, options, file);
    }
  }
  return step_of(open_routing_known(content, source, without_transitions(options)), options, file);
}

Counts read_loads(const ByteSource& source, const LoadsOptions& options) {
  return read_step_loads(source, options).counts;
}

}  // namespace evenkeel
