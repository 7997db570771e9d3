#include "cli/routing_input.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/trace_file.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel::cli {

namespace {

bool is_profile(const std::shared_ptr<const ByteSource>& source) {
  if (detect_format(*source) == FileFormat::json) return true;
  return open_array_file(source)->find("loads") != nullptr;
}

RoutingInput read_trace(std::shared_ptr<const ByteSource> source, const InputNeeds& needs) {
  TraceOptions how;
  if (needs.num_experts > 0) how.num_experts = needs.num_experts;
  const auto trace = open_trace(std::move(source), how);
  const bool layer_to_layer = needs.traffic == TrafficModel::layer_to_layer;
  RoutingInput input{.what = "trace", .profile = profile_trace(*trace, {.transitions = layer_to_layer})};
  if (!layer_to_layer) input.sources = source_counts(*trace, needs.num_ranks);
  return input;
}

}  // namespace

RoutingInput read_input(const std::string& path, const InputNeeds& needs) {
  auto source = open_source(path);
  if (!is_profile(source)) return read_trace(std::move(source), needs);
  RoutingInput input{.what = "profile", .profile = read_profile(std::move(source))};
  if (needs.num_experts > 0 && needs.num_experts != input.profile.num_experts())
    throw InvalidArgument(
        "--num-experts",
        fmt::format("{}, but {} has {}", needs.num_experts, path, input.profile.num_experts()),
        "to leave it out");
  return input;
}

}  // namespace evenkeel::cli
