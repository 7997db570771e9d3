#include "evenkeel/placement/internal/relabel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/placement/fast.h"
#include "evenkeel/placement/quality.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel::internal {

namespace {

// For each layer the new name of each rank.
using Names = std::vector<std::vector<int>>;

// The traffic of every exchange between what ranks hold now.
struct Exchanges {
  std::vector<RankTraffic> of_exchange;  // [P, P] each

  explicit Exchanges(const PlacementProblem& problem, const Placement& placement) {
    const int layers = placement.num_layers();
    if (problem.traffic == TrafficModel::layer_to_layer) {
      for (LayerId layer : indices<LayerId>(layers - 1))
        of_exchange.push_back(layer_to_layer_traffic(problem.profile, placement, layer));
    } else {
      for (LayerId layer : indices<LayerId>(layers))
        of_exchange.push_back(dispatch_traffic(problem.sources, placement, layer));
    }
  }
};

// Summed to the `size` parts that senders and receivers are in; -1: in none.
std::vector<double> summed(const RankTraffic& traffic, const std::vector<int>& senders,
                           const std::vector<int>& receivers, std::size_t size) {
  std::vector<double> sums(size * size, 0.0);
  for (std::size_t from = 0; from < senders.size(); ++from)
    for (std::size_t to = 0; to < receivers.size(); ++to)
      if (senders[from] >= 0 && receivers[to] >= 0)
        sums[static_cast<std::size_t>(senders[from]) * size + static_cast<std::size_t>(receivers[to])] +=
            traffic[from * receivers.size() + to];
  return sums;
}

// Traffic becomes whole numbers: a thousandth of a transition still counts, and no total is too large.
double scale_of(const std::vector<std::vector<double>>& exchanges) {
  double total = 0;
  for (const auto& exchange : exchanges) total = std::accumulate(exchange.begin(), exchange.end(), total);
  return std::min(1024.0, 0x1p60 / std::max(total, 1.0));
}

// Program 2 for `size` clusters a layer whose traffic is given, [size, size] for each exchange.
Names best_names(const PlacementProblem& problem, const std::vector<std::vector<double>>& exchanges,
                 const Topology& topology, const SolveLimits& limits) {
  const int size = topology.num_ranks();
  const int layers = problem.profile.num_layers();
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  const Clustering clusters{.cluster_of = Names(static_cast<std::size_t>(layers), all)};
  std::vector<std::int64_t> transitions;
  SourceCounts sources;
  if (problem.traffic == TrafficModel::layer_to_layer) {
    const double scale = scale_of(exchanges);
    for (const auto& exchange : exchanges)
      for (double each : exchange) transitions.push_back(std::llround(each * scale));
  } else {
    sources = {.num_layers = layers, .num_ranks = size, .num_experts = size};
    for (const auto& exchange : exchanges)
      sources.counts.insert(sources.counts.end(), exchange.begin(), exchange.end());
  }
  const RoutingProfile profile(
      layers, size,
      std::vector<std::int64_t>(static_cast<std::size_t>(layers) * static_cast<std::size_t>(size), 1),
      std::move(transitions));
  const PlacementProblem renaming{.profile = profile,
                                  .topology = topology,
                                  .traffic = problem.traffic,
                                  .pairs = problem.pairs,
                                  .sources = sources};
  return assign_ranks_fast(renaming, clusters, limits).rank_of;
}

// The same links, without rooms: whether contents fit is asked at the end.
Topology without_rooms(const Topology& topology) {
  Topology::Description description = topology.description();
  description.rooms.clear();
  return Topology(std::move(description));
}

Names rename_all(const PlacementProblem& problem, const Exchanges& exchanges, const SolveLimits& limits) {
  std::vector<std::vector<double>> traffic(exchanges.of_exchange.begin(), exchanges.of_exchange.end());
  return best_names(problem, traffic, without_rooms(problem.topology), limits);
}

// Ranks of a node, in order, get the names of the ranks of another node.
Names rename_nodes_then_ranks(const PlacementProblem& problem, const Exchanges& exchanges,
                              const SolveLimits& limits) {
  const Topology& topology = problem.topology;
  const int nodes = topology.num_nodes();
  const int each = topology.num_ranks() / nodes;
  const auto layers = static_cast<std::size_t>(problem.profile.num_layers());
  const bool dispatch = problem.traffic == TrafficModel::dispatch_combine;
  const std::vector<int>& node_of_rank = topology.description().node_of_rank;

  std::vector<std::vector<double>> between_nodes;
  for (const RankTraffic& traffic : exchanges.of_exchange)
    between_nodes.push_back(summed(traffic, node_of_rank, node_of_rank, static_cast<std::size_t>(nodes)));
  const Names node_names = best_names(problem, between_nodes, Topology::uniform(1, nodes), limits);

  Names names(layers, std::vector<int>(static_cast<std::size_t>(topology.num_ranks())));
  for (int node = 0; node < nodes; ++node) {
    // Of each layer, the ranks whose contents the node now has.
    std::vector<std::vector<int>> members(layers, std::vector<int>(node_of_rank.size(), -1));
    std::vector<int> own(node_of_rank.size(), -1);
    for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
      const int place = static_cast<int>(rank) % each;
      if (node_of_rank[rank] == node) own[rank] = place;
      for (std::size_t layer = 0; layer < layers; ++layer)
        if (node_names[layer][static_cast<std::size_t>(node_of_rank[rank])] == node)
          members[layer][rank] = place;
    }
    std::vector<std::vector<double>> within;
    for (std::size_t i = 0; i < exchanges.of_exchange.size(); ++i)
      within.push_back(summed(exchanges.of_exchange[i], dispatch ? own : members[i],
                              dispatch ? members[i] : members[i + 1], static_cast<std::size_t>(each)));
    const Names rank_names = best_names(problem, within, Topology::uniform(1, each), limits);
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

bool fits(const Topology& topology, const Placement& placement) {
  for (int layer = 0; layer < placement.num_layers(); ++layer)
    for (RankId rank : indices<RankId>(placement.num_ranks()))
      if (const auto room = topology.room(rank);
          room && placement.layer(layer).natives(rank).size() > static_cast<std::size_t>(*room))
        return false;
  return true;
}

}  // namespace

Placement relabel_ranks(const PlacementProblem& problem, const Placement& placement, bool nodes_stay_together,
                        const SolveLimits& limits) {
  const Exchanges exchanges(problem, placement);
  if (exchanges.of_exchange.empty() || placement.num_ranks() < 2) return placement;
  const bool by_node = nodes_stay_together && problem.topology.num_nodes() > 1;
  const Names names =
      by_node ? rename_nodes_then_ranks(problem, exchanges, limits) : rename_all(problem, exchanges, limits);
  const Placement better = renamed(placement, names);
  if (!fits(problem.topology, better)) return placement;
  return pair_objective(problem, better) < pair_objective(problem, placement) ? better : placement;
}

}  // namespace evenkeel::internal
