#include "evenkeel/placement/internal/problem_check.h"

#include <fmt/format.h>

#include <cmath>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

void require_shape(const SourceCounts& sources, const RoutingProfile& profile, const Topology& topology) {
  const int layers = profile.num_layers();
  const int ranks = topology.num_ranks();
  const int experts = profile.num_experts();
  const std::size_t size =
      static_cast<std::size_t>(layers) * static_cast<std::size_t>(ranks) * static_cast<std::size_t>(experts);
  if (sources.num_layers != layers || sources.num_ranks != ranks || sources.num_experts != experts ||
      sources.counts.size() != size)
    throw InvalidArgument("sources",
                          fmt::format("have {} layers, {} ranks and {} experts", sources.num_layers,
                                      sources.num_ranks, sources.num_experts),
                          fmt::format("{} layers, {} ranks and {} experts", layers, ranks, experts));
}

void require_clusters(const PlacementProblem& problem, const std::vector<std::vector<int>>& cluster_of) {
  const auto layers = static_cast<std::size_t>(problem.profile.num_layers());
  const auto experts = static_cast<std::size_t>(problem.profile.num_experts());
  if (cluster_of.size() != layers)
    throw InvalidArgument("clustering", fmt::format("has {} layers", cluster_of.size()),
                          fmt::format("{}, as the profile has", layers));
  for (std::size_t layer = 0; layer < layers; ++layer) {
    if (cluster_of[layer].size() != experts)
      throw InvalidArgument("clustering",
                            fmt::format("has {} experts in layer {}", cluster_of[layer].size(), layer),
                            fmt::format("{}, as the profile has", experts));
    for (int cluster : cluster_of[layer])
      if (cluster < 0 || cluster >= problem.topology.num_ranks())
        throw InvalidArgument("clustering", fmt::format("has cluster {} in layer {}", cluster, layer),
                              fmt::format("0..{}", problem.topology.num_ranks() - 1));
  }
}

void require_traffic(const PlacementProblem& problem) {
  if (problem.traffic == TrafficModel::layer_to_layer) {
    if (problem.profile.num_layers() > 1 && !problem.profile.has_transitions())
      throw InvalidArgument("profile", "has no transitions",
                            "a profile with transitions, or traffic dispatch_combine with source counts");
    return;
  }
  require_shape(problem.sources, problem.profile, problem.topology);
  for (double count : problem.sources.counts)
    if (!(count >= 0) || !std::isfinite(count))
      throw InvalidArgument("sources", fmt::format("have a count of {}", count), "0 or more, finite");
}

void require_fit(const char* what, int layers, int experts, const Placement& placement) {
  if (layers != placement.num_layers() || experts != placement.num_experts())
    throw InvalidArgument(
        "placement",
        fmt::format("has {} layers of {} experts", placement.num_layers(), placement.num_experts()),
        fmt::format("{} layers of {} experts, as the {} has", layers, experts, what));
}

}  // namespace evenkeel::internal
