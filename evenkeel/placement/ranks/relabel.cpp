// Renames the ranks of a placement: each rank's contents are one cluster for the fast solver of program 2.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/quality.h"
#include "evenkeel/placement/ranks/internal/methods.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel {

namespace {

using internal::Deadline;

// For each layer the new name of each rank.
using Names = std::vector<std::vector<int>>;

// The traffic of every exchange between the present contents of ranks; fewer exchanges if time runs out.
std::vector<RankTraffic> exchanges_of(const PlacementProblem& problem, const Placement& placement,
                                      const Deadline& deadline) {
  std::vector<RankTraffic> exchanges;
  for (LayerId exchange : indices<LayerId>(num_exchanges(problem))) {
    if (deadline.passed()) break;
    exchanges.push_back(exchange_traffic(problem, placement, exchange));
  }
  return exchanges;
}

// Adds up the traffic between `size` parts. senders and receivers give the part of each rank, or -1 for none.
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

// Rounds traffic to whole numbers, in units such that a thousandth of a transition counts and no total
// overflows.
void round_traffic(std::vector<RankTraffic>& exchanges) {
  double total = 0;
  for (const RankTraffic& exchange : exchanges)
    total = std::accumulate(exchange.begin(), exchange.end(), total);
  const double scale = std::min(1024.0, 0x1p60 / std::max(total, 1.0));
  for (RankTraffic& exchange : exchanges)
    for (double& sent : exchange) sent = std::round(sent * scale);
}

// Slots of each cluster and of each rank: a cluster may go only to a rank with the same number of slots.
struct Slots {
  std::vector<std::vector<int>> of_cluster;  // [L][P]
  std::vector<int> of_rank;                  // [P]
};

// Solves program 2 for clusters with the given traffic, [P, P] for each exchange.
Names best_names(const PlacementProblem& problem, std::vector<RankTraffic> exchanges, const Topology& links,
                 Slots slots, const Deadline& deadline) {
  if (problem.traffic == TrafficModel::layer_to_layer) round_traffic(exchanges);
  const internal::ClusterTraffic traffic(links, problem.traffic, problem.pairs, std::move(exchanges));
  const internal::RankRule rule({.capacities = std::move(slots.of_rank)}, std::move(slots.of_cluster));
  return internal::fast_ranks(traffic, rule, Deadline(deadline.left())).rank_of;
}

// Renames parts: a part is a single rank or a node.
Names rename_parts(const PlacementProblem& problem, const std::vector<RankTraffic>& exchanges,
                   const std::vector<int>& part_of_rank, const Topology& links,
                   std::span<const std::int32_t> slots_per_rank, const Deadline& deadline) {
  const auto parts = static_cast<std::size_t>(links.num_ranks());
  std::vector<RankTraffic> between;
  for (const RankTraffic& traffic : exchanges)
    between.push_back(summed(traffic, part_of_rank, part_of_rank, parts));
  std::vector<int> slots(parts, 0);
  for (std::size_t rank = 0; rank < part_of_rank.size(); ++rank)
    slots[static_cast<std::size_t>(part_of_rank[rank])] += slots_per_rank[rank];
  const auto layers = static_cast<std::size_t>(problem.profile.num_layers());
  return best_names(problem, std::move(between), links, {std::vector<std::vector<int>>(layers, slots), slots},
                    deadline);
}

// Renames nodes, then the ranks within each node. Empty if the deadline passes first.
Names rename_nodes_then_ranks(const PlacementProblem& problem, const std::vector<RankTraffic>& exchanges,
                              std::span<const std::int32_t> slots_per_rank, const Deadline& deadline) {
  const Topology& topology = problem.topology;
  const int nodes = topology.num_nodes();
  const int each = topology.num_ranks() / nodes;
  const auto layers = static_cast<std::size_t>(problem.profile.num_layers());
  const bool dispatch = problem.traffic == TrafficModel::dispatch_combine;
  const std::vector<int>& node_of_rank = topology.description().node_of_rank;
  const Names node_names =
      rename_parts(problem, exchanges, node_of_rank, Topology::uniform(1, nodes), slots_per_rank, deadline);

  Names names(layers, std::vector<int>(static_cast<std::size_t>(topology.num_ranks())));
  for (int node = 0; node < nodes; ++node) {
    if (deadline.passed()) return {};
    // For each layer, the ranks whose contents the node now has.
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
    std::vector<RankTraffic> within;
    for (std::size_t i = 0; i < exchanges.size(); ++i)
      within.push_back(summed(exchanges[i], dispatch ? own : members[i],
                              dispatch ? members[i] : members[i + 1], static_cast<std::size_t>(each)));
    const Names rank_names =
        best_names(problem, std::move(within), Topology::uniform(1, each), slots, deadline);
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
  const std::vector<RankTraffic> exchanges = exchanges_of(problem, placement, deadline);
  if (exchanges.empty() || placement.num_ranks() < 2 || deadline.passed()) return placement;
  const bool by_node = nodes_stay_together && problem.topology.num_nodes() > 1;
  const Names names = by_node ? rename_nodes_then_ranks(problem, exchanges, slots_per_rank, deadline)
                              : rename_parts(problem, exchanges, internal::in_order(slots_per_rank.size()),
                                             problem.topology, slots_per_rank, deadline);
  if (names.empty()) return placement;
  const Placement better = renamed(placement, names);
  return pair_objective(problem, better) < pair_objective(problem, placement) ? better : placement;
}

}  // namespace evenkeel
