#include "evenkeel/placement/internal/place_options.h"

#include <fmt/format.h>

#include <limits>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/problem_check.h"

namespace evenkeel::internal {

// Solvers that balance copies support neither the paper's free sizes nor an integer program.
void require_equal_and_fast(const PlaceOptions& options, const char* beside) {
  if (options.sizes == ClusterSizes::free)
    throw InvalidArgument("sizes", fmt::format("free does not work with {}", beside), "equal");
  if (options.solver == PlaceOptions::Solver::exact)
    throw InvalidArgument("solver", fmt::format("exact does not work with {}", beside), "fast");
}

void require_plain(const PlaceOptions& options, const char* beside) {
  if (options.objective == PlaceOptions::Objective::joint)
    throw InvalidArgument("objective", fmt::format("joint does not work with {}", beside), "two-stage");
  require_equal_and_fast(options, beside);
}

namespace {

using Solver = PlaceOptions::Solver;
using Objective = PlaceOptions::Objective;

void require_numbers(const PlaceOptions& options) {
  if (options.redundant_experts < 0)
    throw InvalidArgument("redundant_experts", fmt::format("is {}", options.redundant_experts), "0 or more");
  if (options.num_groups < 1)
    throw InvalidArgument("groups", fmt::format("is {}", options.num_groups), "1 or more");
  const SolveLimits& limits = options.limits;
  if (!(limits.time_limit_s > 0))
    throw InvalidArgument("time_limit", fmt::format("is {} s", limits.time_limit_s), "above 0");
  if (!(limits.relative_gap >= 0 && limits.relative_gap < 1))
    throw InvalidArgument("gap", fmt::format("is {}", limits.relative_gap), "0 or more, below 1");
  const PlacementCost& cost = options.cost;
  if (!(cost.assignment_us >= 0 && cost.assignment_us <= PlacementCost::most_assignment_us))
    throw InvalidArgument("cost", fmt::format("an assignment of {} us", cost.assignment_us),
                          fmt::format("0..{:g}", PlacementCost::most_assignment_us));
  if (!(cost.assignment_bytes >= 0 && cost.assignment_bytes <= PlacementCost::most_assignment_bytes))
    throw InvalidArgument("cost", fmt::format("an assignment of {} bytes", cost.assignment_bytes),
                          fmt::format("0..{:g}", PlacementCost::most_assignment_bytes));
}

// The joint objective assumes that loads are split evenly over copies.
void require_even(Dispatch dispatch, const Topology& topology) {
  if (dispatch == Dispatch::even || (dispatch == Dispatch::nearest && topology.num_nodes() == 1)) return;
  throw InvalidArgument(
      "dispatch",
      fmt::format("'{}' uses copies unevenly, but objective joint assumes even use", name_of(dispatch)),
      "even, or objective two-stage");
}

void require_replicas(const RoutingProfile& profile, const Topology& topology, const PlaceOptions& options) {
  if (options.num_groups > 1) require_plain(options, "expert groups");
  require_equal_and_fast(options, "redundant experts");
  if (options.objective == Objective::joint) require_even(options.dispatch, topology);
  const int experts = profile.num_experts();
  if (options.redundant_experts > std::numeric_limits<int>::max() / 2 - experts)
    throw InvalidArgument("redundant_experts", fmt::format("is {}", options.redundant_experts),
                          fmt::format("at most {}", std::numeric_limits<int>::max() / 2 - experts));
  if (options.num_groups > 1 && experts % options.num_groups != 0)
    throw InvalidArgument(
        "groups", fmt::format("{} experts cannot form {} groups of equal size", experts, options.num_groups),
        "a divisor of the number of experts");
  if (options.num_groups == 1) return;
  const std::vector<int>& nodes = topology.description().node_of_rank;
  if (topology.num_ranks() % topology.num_nodes() != 0)
    throw InvalidArgument("topology", "has nodes of different sizes, but expert groups stay in a node",
                          "nodes with equally many ranks");
  const int ranks_per_node = topology.num_ranks() / topology.num_nodes();
  for (int rank = 0; rank < topology.num_ranks(); ++rank)
    if (nodes[static_cast<std::size_t>(rank)] != rank / ranks_per_node)
      throw InvalidArgument(
          "topology", "has nodes of different sizes or ranks out of order, but expert groups stay in a node",
          "nodes with equally many ranks, numbered node by node");
}

void require_from_in_capacity(const LayerPlacement& from, int layer, const Topology& topology) {
  for (RankId rank : indices<RankId>(topology.num_ranks()))
    if (const auto held = from.natives(rank).size();
        topology.capacity(rank) && held > static_cast<std::size_t>(*topology.capacity(rank)))
      throw InvalidArgument("from",
                            fmt::format("has {} experts on rank {} in layer {}", held, rank.value(), layer),
                            fmt::format("at most {}, the capacity of the rank", *topology.capacity(rank)));
}

// Experts do not leave their nodes, so groups stay together if they are together in `from`.
void require_from_in_groups(const LayerPlacement& from, int layer, const Topology& topology, int num_groups) {
  const int group_size = from.num_experts() / num_groups;
  for (ExpertId expert : indices<ExpertId>(from.num_experts())) {
    const int group = expert.value() / group_size;
    const NodeId node = topology.node_of(from.owner(ExpertId(group * group_size)));
    for (RankId rank : from.homes(expert))
      if (topology.node_of(rank) != node)
        throw InvalidArgument("from",
                              fmt::format("has experts of group {} on nodes {} and {} in layer {}", group,
                                          node.value(), topology.node_of(rank).value(), layer),
                              "a placement whose groups are each on one node");
  }
}

void require_from(const RoutingProfile& profile, const Topology& topology, const PlaceOptions& options) {
  if (!options.from) {
    if (options.max_moves != 0)
      throw InvalidArgument("max_moves",
                            fmt::format("is {}, but there is no placement to move from", options.max_moves),
                            "0, or from, a placement to start at");
    return;
  }
  if (options.max_moves < 0)
    throw InvalidArgument("max_moves", fmt::format("is {}", options.max_moves),
                          "0 or more: how many experts may get another home");
  require_plain(options, "a placement to start from");
  const Placement& from = *options.from;
  if (from.num_layers() != profile.num_layers() || from.num_experts() != profile.num_experts() ||
      from.num_ranks() != topology.num_ranks())
    throw InvalidArgument("from",
                          fmt::format("has {} layers of {} experts on {} ranks", from.num_layers(),
                                      from.num_experts(), from.num_ranks()),
                          fmt::format("{} layers of {} experts on {} ranks", profile.num_layers(),
                                      profile.num_experts(), topology.num_ranks()));
  for (int layer = 0; layer < from.num_layers(); ++layer) {
    require_from_in_capacity(from.layer(layer), layer, topology);
    if (options.num_groups > 1)
      require_from_in_groups(from.layer(layer), layer, topology, options.num_groups);
  }
}

// The limit is far below what a double holds, so that no sum of counts overflows.
void require_countable(const SourceCounts& sources) {
  constexpr double most = 0x1p63;
  for (std::size_t i = 0; i < sources.counts.size(); ++i)
    if (!(sources.counts[i] >= 0 && sources.counts[i] <= most))
      throw InvalidArgument("sources", fmt::format("element {} is {}", i, sources.counts[i]), "0..2^63");
}

void require_traffic(const RoutingProfile& profile, const Topology& topology, const PlaceOptions& options) {
  const bool needed = options.objective == Objective::joint;
  if (options.traffic == TrafficModel::layer_to_layer) {
    if (!options.sources.empty())
      throw InvalidArgument("sources", "apply only to traffic dispatch_combine",
                            "to leave them out, or traffic dispatch_combine");
    if (needed && traffic_is_unknown(profile, options.traffic))
      throw InvalidArgument(
          "traffic",
          "objective joint counts transitions between layers, and the profile has none (it was made "
          "without them, or from counts)",
          "a profile with transitions, or dispatch-combine, which needs loads alone");
    return;
  }
  const SourceCounts& sources = options.sources;
  if (sources.empty()) return;
  require_shape(sources, profile, topology);
  require_countable(sources);
}

// The total over pairs is refused where traffic is unknown or has no effect.
void require_pairs(const RoutingProfile& profile, const PlaceOptions& options, bool balance_alone) {
  if (options.pairs == PairObjective::worst_pair) return;
  const auto refuse = [](const char* why, const char* allowed = "worst") {
    throw InvalidArgument("pairs", why, allowed);
  };
  if (options.from) refuse("'total' does not work with a placement to start from");
  if (traffic_is_unknown(profile, options.traffic))
    refuse(
        "'total' needs transitions between layers, but the profile has none (it was made without them, or "
        "from counts or steps)");
  if (balance_alone && options.traffic == TrafficModel::dispatch_combine && options.sources.empty())
    refuse("'total' needs to know which rank each token comes from, which the recording does not say",
           "worst, or source counts (from a trace)");
}

void require_slots(const RoutingProfile& profile, const Topology& topology, const PlaceOptions& options) {
  const std::int64_t physical = std::int64_t{profile.num_experts()} + options.redundant_experts;
  if (physical < topology.num_ranks() && !options.from)
    throw InvalidArgument("ranks",
                          fmt::format("{} ranks are more than {} physical experts: some rank would have none",
                                      topology.num_ranks(), physical),
                          fmt::format("up to {}, or redundant experts", physical));
  std::int64_t slots = 0;
  bool limited = true;
  for (RankId rank : indices<RankId>(topology.num_ranks())) {
    const std::optional<int> capacity = topology.capacity(rank);
    limited = limited && capacity.has_value();
    slots += capacity.value_or(0);
  }
  if (limited && slots < physical)
    throw Infeasible(fmt::format("{} physical experts a layer, but all ranks together have capacity for {}",
                                 physical, slots));
}

}  // namespace

bool traffic_is_unknown(const RoutingProfile& profile, TrafficModel traffic) {
  return traffic == TrafficModel::layer_to_layer && profile.num_layers() > 1 && !profile.has_transitions();
}

bool has_replicas(const PlaceOptions& options) {
  return options.redundant_experts > 0 || options.num_groups > 1;
}

void validate_options(const RoutingProfile& profile, const Topology& topology, const PlaceOptions& options,
                      bool several_recordings) {
  require_numbers(options);
  if (profile.num_layers() < 1) throw InvalidArgument("profile", "has no layers", "1 or more");
  if (has_replicas(options)) require_replicas(profile, topology, options);
  require_from(profile, topology, options);
  require_slots(profile, topology, options);
  require_traffic(profile, topology, options);
  require_pairs(profile, options, several_recordings || has_replicas(options));
}

}  // namespace evenkeel::internal
