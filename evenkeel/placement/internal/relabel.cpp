#include "evenkeel/placement/internal/relabel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/quality.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel::internal {

namespace {

// For each layer the new name of each rank.
using Names = std::vector<std::vector<int>>;

// The traffic of every exchange between what ranks hold now.
struct Exchanges {
  std::vector<RankTraffic> of_exchange;  // [P, P] each

  Exchanges(const PlacementProblem& problem, const Placement& placement, const Deadline& deadline) {
    const bool dispatch = problem.traffic == TrafficModel::dispatch_combine;
    for (LayerId layer : indices<LayerId>(placement.num_layers() - (dispatch ? 0 : 1))) {
      if (deadline.passed()) return;
      of_exchange.push_back(dispatch ? dispatch_traffic(problem.sources, placement, layer)
                                     : layer_to_layer_traffic(problem.profile, placement, layer));
    }
  }
};

// Summed to the `size` parts that senders and receivers are in; -1: in none.
std::vector<double> summed(const RankTraffic& traffic, const std::vector<int>& senders,
                           const std::vector<int>& receivers, std::size_t size) {
  std::vector<double> sums(size * size, 0.0);
  for (std::size_t from = 0; from < senders.size(); ++from) {
    if (senders[from] < 0) continue;
    for (std::size_t to = 0; to < receivers.size(); ++to)
      if (receivers[to] >= 0)
        sums[static_cast<std::size_t>(senders[from]) * size + static_cast<std::size_t>(receivers[to])] +=
            traffic[from * receivers.size() + to];
  }
  return sums;
}

// Traffic becomes whole numbers: a thousandth of a transition still counts, and no total is too large.
double scale_of(const std::vector<std::vector<double>>& exchanges) {
  double total = 0;
  for (const auto& exchange : exchanges) total = std::accumulate(exchange.begin(), exchange.end(), total);
  return std::min(1024.0, 0x1p60 / std::max(total, 1.0));
}

// Slots of each cluster and of each rank: a cluster goes only where its slots are.
struct Slots {
  std::vector<std::vector<int>> of_cluster;  // [L][P]
  std::vector<int> of_rank;                  // [P]

  // Slots beyond the fewest: so many experts that nobody sends to stand in the larger clusters, so that only
  // the larger ranks have capacity for those.
  int beyond_fewest(int slots) const { return slots - std::ranges::min(of_rank); }
  int num_beyond() const {
    int sum = 0;
    for (int slots : of_rank) sum += beyond_fewest(slots);
    return sum;
  }
};

Names clusters_of(const Slots& slots) {
  Names cluster_of;
  for (const std::vector<int>& of_layer : slots.of_cluster) {
    auto& layer = cluster_of.emplace_back(of_layer.size());
    std::iota(layer.begin(), layer.end(), 0);
    for (std::size_t cluster = 0; cluster < of_layer.size(); ++cluster)
      layer.insert(layer.end(), static_cast<std::size_t>(slots.beyond_fewest(of_layer[cluster])),
                   static_cast<int>(cluster));
  }
  return cluster_of;
}

Topology with_capacities(const Topology& topology, const Slots& slots) {
  Topology::Description description = topology.description();
  description.capacities.clear();
  if (slots.num_beyond() > 0)
    for (int of_rank : slots.of_rank) description.capacities.push_back(1 + slots.beyond_fewest(of_rank));
  return Topology(std::move(description));
}

// Program 2 for the clusters whose traffic is given, [P, P] for each exchange.
Names best_names(const PlacementProblem& problem, const std::vector<std::vector<double>>& exchanges,
                 const Topology& links, const Slots& slots, const Deadline& deadline) {
  const auto ranks = static_cast<std::size_t>(links.num_ranks());
  const auto experts = ranks + static_cast<std::size_t>(slots.num_beyond());
  const int layers = problem.profile.num_layers();
  const bool dispatch = problem.traffic == TrafficModel::dispatch_combine;
  const double scale = scale_of(exchanges);
  std::vector<std::int64_t> transitions;
  SourceCounts sources;
  if (dispatch)
    sources = {
        .num_layers = layers, .num_ranks = links.num_ranks(), .num_experts = static_cast<int>(experts)};
  for (const auto& exchange : exchanges)
    for (std::size_t from = 0; from < (dispatch ? ranks : experts); ++from)
      for (std::size_t to = 0; to < experts; ++to) {
        const double sent = from < ranks && to < ranks ? exchange[from * ranks + to] : 0;
        if (dispatch)
          sources.counts.push_back(sent);
        else
          transitions.push_back(std::llround(sent * scale));
      }
  const RoutingProfile profile(layers, static_cast<int>(experts),
                               std::vector<std::int64_t>(static_cast<std::size_t>(layers) * experts, 1),
                               std::move(transitions));
  const Topology topology = with_capacities(links, slots);
  const PlacementProblem renaming{.profile = profile,
                                  .topology = topology,
                                  .traffic = problem.traffic,
                                  .pairs = problem.pairs,
                                  .sources = sources};
  return assign_ranks_fast(renaming, {.cluster_of = clusters_of(slots)}, deadline.left()).rank_of;
}

Names rename_all(const PlacementProblem& problem, const Exchanges& exchanges,
                 std::span<const std::int32_t> slots_per_rank, const Deadline& deadline) {
  std::vector<std::vector<double>> traffic(exchanges.of_exchange.begin(), exchanges.of_exchange.end());
  const std::vector<int> slots(slots_per_rank.begin(), slots_per_rank.end());
  const auto layers = static_cast<std::size_t>(problem.profile.num_layers());
  return best_names(problem, traffic, problem.topology, {std::vector<std::vector<int>>(layers, slots), slots},
                    deadline);
}

Names rename_nodes(const PlacementProblem& problem, const Exchanges& exchanges,
                   std::span<const std::int32_t> slots_per_rank, const Deadline& deadline) {
  const std::vector<int>& node_of_rank = problem.topology.description().node_of_rank;
  const int nodes = problem.topology.num_nodes();
  std::vector<std::vector<double>> between;
  for (const RankTraffic& traffic : exchanges.of_exchange)
    between.push_back(summed(traffic, node_of_rank, node_of_rank, static_cast<std::size_t>(nodes)));
  std::vector<int> slots(static_cast<std::size_t>(nodes), 0);
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank)
    slots[static_cast<std::size_t>(node_of_rank[rank])] += slots_per_rank[rank];
  const auto layers = static_cast<std::size_t>(problem.profile.num_layers());
  return best_names(problem, between, Topology::uniform(1, nodes),
                    {std::vector<std::vector<int>>(layers, slots), slots}, deadline);
}

// Ranks of a node, in order, get the names of the ranks of another node. Empty if the deadline passed before.
Names rename_nodes_then_ranks(const PlacementProblem& problem, const Exchanges& exchanges,
                              std::span<const std::int32_t> slots_per_rank, const Deadline& deadline) {
  const Topology& topology = problem.topology;
  const int nodes = topology.num_nodes();
  const int each = topology.num_ranks() / nodes;
  const auto layers = static_cast<std::size_t>(problem.profile.num_layers());
  const bool dispatch = problem.traffic == TrafficModel::dispatch_combine;
  const std::vector<int>& node_of_rank = topology.description().node_of_rank;
  const Names node_names = rename_nodes(problem, exchanges, slots_per_rank, deadline);

  Names names(layers, std::vector<int>(static_cast<std::size_t>(topology.num_ranks())));
  for (int node = 0; node < nodes; ++node) {
    if (deadline.passed()) return {};
    // Of each layer, the ranks whose contents the node now has.
    std::vector<std::vector<int>> members(layers, std::vector<int>(node_of_rank.size(), -1));
    std::vector<int> own(node_of_rank.size(), -1);
    Slots slots{.of_cluster = std::vector<std::vector<int>>(layers), .of_rank = {}};
    for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
      const int place = static_cast<int>(rank) % each;
      if (node_of_rank[rank] == node) {
        own[rank] = place;
        slots.of_rank.push_back(slots_per_rank[rank]);
      }
      for (std::size_t layer = 0; layer < layers; ++layer)
        if (node_names[layer][static_cast<std::size_t>(node_of_rank[rank])] == node) {
          members[layer][rank] = place;
          slots.of_cluster[layer].push_back(slots_per_rank[rank]);
        }
    }
    std::vector<std::vector<double>> within;
    for (std::size_t i = 0; i < exchanges.of_exchange.size(); ++i)
      within.push_back(summed(exchanges.of_exchange[i], dispatch ? own : members[i],
                              dispatch ? members[i] : members[i + 1], static_cast<std::size_t>(each)));
    const Names rank_names = best_names(problem, within, Topology::uniform(1, each), slots, deadline);
    for (std::size_t layer = 0; layer < layers; ++layer)
      for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank)
        if (const int place = members[layer][rank]; place >= 0)
          names[layer][rank] = node * each + rank_names[layer][static_cast<std::size_t>(place)];
  }
  return names;
}

Placement renamed(const Placement& placement, const Names& names) {
  std::vector<LayerPlacement> layers;
  for (int layer = 0; layer < placement.num_layers(); ++layer) {
    const LayerPlacement& now = placement.layer(layer);
    std::vector<std::vector<int>> homes;
    for (ExpertId expert : indices<ExpertId>(now.num_experts())) {
      auto& of_expert = homes.emplace_back();
      for (RankId rank : now.homes(expert))
        of_expert.push_back(names[static_cast<std::size_t>(layer)][rank.offset()]);
    }
    layers.emplace_back(homes, now.num_ranks());
  }
  return Placement(std::move(layers));
}

}  // namespace

Placement relabel_ranks(const PlacementProblem& problem, const Placement& placement,
                        std::span<const std::int32_t> slots_per_rank, bool nodes_stay_together,
                        const SolveLimits& limits) {
  const Deadline deadline(limits);
  const Exchanges exchanges(problem, placement, deadline);
  if (exchanges.of_exchange.empty() || placement.num_ranks() < 2 || deadline.passed()) return placement;
  const bool by_node = nodes_stay_together && problem.topology.num_nodes() > 1;
  const Names names = by_node ? rename_nodes_then_ranks(problem, exchanges, slots_per_rank, deadline)
                              : rename_all(problem, exchanges, slots_per_rank, deadline);
  if (names.empty()) return placement;
  const Placement better = renamed(placement, names);
  return pair_objective(problem, better) < pair_objective(problem, placement) ? better : placement;
}

}  // namespace evenkeel::internal
