#include "benchmarks/placement_study/methods.h"

#include <limits>
#include <utility>

#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/joint/joint.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "evenkeel/placement/replicas/replicas.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel::study {

namespace {

// No time limit, so that tables are reproducible.
const SolveLimits kNoClock{.time_limit_s = std::numeric_limits<double>::infinity()};

// A placement problem, with ownership of everything that it refers to.
struct Seen {
  RoutingProfile profile;
  SourceCounts sources;
  Setting setting;

  Seen(const Recording& recording, const Setting& given) : setting(given) {
    MemoryTrace trace = recording.trace();
    profile = profile_trace(trace);
    if (setting.traffic == TrafficModel::dispatch_combine)
      sources = source_counts(trace, setting.topology.num_ranks());
  }

  PlacementProblem problem() const {
    return {.profile = profile,
            .topology = setting.topology,
            .traffic = setting.traffic,
            .sources = sources,
            .cost = setting.cost};
  }
};

Placement balanced_by_load(const RoutingProfile& profile, int num_ranks, int copies) {
  const std::vector<double> loads(profile.loads().begin(), profile.loads().end());
  return placement_of(replicate({.num_layers = profile.num_layers(),
                                 .num_experts = profile.num_experts(),
                                 .loads = loads,
                                 .num_physical = profile.num_experts() + copies,
                                 .num_ranks = num_ranks}),
                      profile.num_experts());
}

RankAssignment identity(int num_layers, int num_ranks) {
  RankAssignment ranks;
  std::vector<int> same(static_cast<std::size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) same[static_cast<std::size_t>(rank)] = rank;
  ranks.rank_of.assign(static_cast<std::size_t>(num_layers), same);
  return ranks;
}

}  // namespace

std::vector<Method> all_methods(const Recording& recording, const Setting& setting) {
  const Seen seen(recording, setting);
  const PlacementProblem problem = seen.problem();
  const int ranks = setting.topology.num_ranks();
  const Clustering clusters = cluster_fast(problem, kNoClock);
  return {
      {"contiguous", Placement::contiguous(recording.num_layers, recording.num_experts, ranks)},
      {"EPLB-style, no copies", balanced_by_load(seen.profile, ranks, 0)},
      {"EPLB-style, a copy a rank", balanced_by_load(seen.profile, ranks, ranks)},
      {"ILP 1 only", placement_of(clusters, identity(recording.num_layers, ranks), ranks)},
      {"ILP 1 + 2", placement_of(clusters, assign_ranks_fast(problem, clusters, kNoClock), ranks)},
      {"joint", placement_of(place_jointly_fast(problem, kNoClock).rank_of_expert, ranks)},
  };
}

Placement place_two_stage(const Recording& recording, const Setting& setting) {
  const Seen seen(recording, setting);
  const PlacementProblem problem = seen.problem();
  const Clustering clusters = cluster_fast(problem, kNoClock);
  return placement_of(clusters, assign_ranks_fast(problem, clusters, kNoClock), setting.topology.num_ranks());
}

}  // namespace evenkeel::study
