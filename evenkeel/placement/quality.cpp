#include "evenkeel/placement/quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/problem_check.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel {

std::vector<double> rank_loads(const RoutingProfile& profile, const Placement& placement,
                               const CopyShares& shares, LayerId layer) {
  std::vector<double> sums(static_cast<std::size_t>(placement.num_ranks()), 0.0);
  const LayerPlacement& homes = placement.layer(layer.value());
  const auto loads = profile.loads(layer);
  for (ExpertId expert : indices<ExpertId>(homes.num_experts())) {
    const auto of_expert = homes.homes(expert);
    const auto parts = shares.of(layer.value(), expert);
    for (std::size_t copy = 0; copy < of_expert.size(); ++copy)
      sums[of_expert[copy].offset()] += static_cast<double>(loads[expert.offset()]) * parts[copy];
  }
  return sums;
}

double max_over_mean(std::span<const double> loads, const Topology& topology) {
  double slowest = 0;
  double load = 0;
  double speed = 0;
  for (RankId rank : indices<RankId>(loads.size())) {
    slowest = std::max(slowest, loads[rank.offset()] / topology.speed(rank));
    load += loads[rank.offset()];
    speed += topology.speed(rank);
  }
  return load > 0 ? slowest * speed / load : 1;
}

namespace {

CopyShares shares_in(const PlacementProblem& problem, const Placement& placement) {
  return CopyShares(placement, problem.topology, problem.dispatch);
}

void require_fit(const PlacementProblem& problem, const Placement& placement) {
  if (placement.num_ranks() != problem.topology.num_ranks())
    throw InvalidArgument("placement", fmt::format("is for {} ranks", placement.num_ranks()),
                          fmt::format("{} ranks, as the topology has", problem.topology.num_ranks()));
  internal::require_fit("profile", problem.profile.num_layers(), problem.profile.num_experts(), placement);
}

// Calls f(from, to, traffic) for every ordered pair of different ranks.
template <class F>
void for_pairs(const RankTraffic& traffic, int num_ranks, F f) {
  std::size_t at = 0;
  for (RankId from : indices<RankId>(num_ranks))
    for (RankId to : indices<RankId>(num_ranks)) {
      if (from != to) f(from, to, traffic[at]);
      ++at;
    }
}

void add_balance(const PlacementProblem& problem, const Placement& placement, const CopyShares& shares,
                 PlacementQuality& quality) {
  const int layers = problem.profile.num_layers();
  quality.max_over_mean_mean = quality.mean_over_max_mean = 0;
  for (LayerId layer : indices<LayerId>(layers)) {
    const double ratio =
        max_over_mean(rank_loads(problem.profile, placement, shares, layer), problem.topology);
    quality.max_over_mean.push_back(ratio);
    quality.max_over_mean_mean += ratio / layers;
    quality.max_over_mean_worst = std::max(quality.max_over_mean_worst, ratio);
    quality.mean_over_max_mean += 1 / ratio / layers;
  }
  quality.relative_excess_mean = quality.max_over_mean_mean - 1;
}

void add_traffic(const PlacementProblem& problem, const RankTraffic& traffic, PlacementQuality& quality) {
  const Topology& topology = problem.topology;
  double worst = 0;
  for_pairs(traffic, topology.num_ranks(), [&](RankId from, RankId to, double each) {
    worst = std::max(worst, each);
    (topology.same_node(from, to) ? quality.crossing_within : quality.crossing_across) += each;
  });
  quality.worst_pair += worst;
  for (std::size_t i = 0; i < traffic.size(); ++i) {
    quality.traffic[i] += traffic[i];
    quality.total += traffic[i];
  }
}

// Time of the slowest pair in one exchange. Each pair sends `traffic`; on the way back the receiver sends it.
double exchange_ms(const PlacementProblem& problem, const RankTraffic& traffic, bool back) {
  double slowest = 0;
  for_pairs(traffic, problem.topology.num_ranks(), [&](RankId from, RankId to, double each) {
    const Link link = back ? problem.topology.link(to, from) : problem.topology.link(from, to);
    slowest = std::max(slowest, link.latency_us * 1e-3 + each * sent_ms(problem.cost, link));
  });
  return slowest;
}

PlacementQuality quality_of(const PlacementProblem& problem, const Placement& placement,
                            const CopyShares& shares) {
  PlacementQuality quality;
  add_balance(problem, placement, shares, quality);
  quality.traffic_known =
      problem.traffic == TrafficModel::dispatch_combine || problem.profile.has_transitions();
  if (!quality.traffic_known) return quality;
  const auto ranks = static_cast<std::size_t>(placement.num_ranks());
  quality.traffic.assign(ranks * ranks, 0.0);
  for (LayerId layer : indices<LayerId>(num_exchanges(problem)))
    add_traffic(problem, exchange_traffic(problem, placement, layer), quality);
  quality.crossing = quality.crossing_within + quality.crossing_across;
  return quality;
}

}  // namespace

PlacementQuality placement_quality(const PlacementProblem& problem, const Placement& placement) {
  require_fit(problem, placement);
  return quality_of(problem, placement, shares_in(problem, placement));
}

PlacementQuality placement_quality(const RoutingProfile& recording, const Topology& topology,
                                   const Placement& placement, const CopyShares& shares) {
  const SourceCounts none;
  const PlacementProblem problem{.profile = recording, .topology = topology, .sources = none};
  require_fit(problem, placement);
  return quality_of(problem, placement, shares);
}

PlacementQuality placement_quality(const RoutingProfile& recording, const Topology& topology,
                                   const Placement& placement, Dispatch dispatch) {
  return placement_quality(recording, topology, placement, CopyShares(placement, topology, dispatch));
}

double pair_objective(const PlacementProblem& problem, const Placement& placement) {
  require_fit(problem, placement);
  double objective = 0;
  for (LayerId layer : indices<LayerId>(num_exchanges(problem))) {
    double worst = 0;
    double total = 0;
    for_pairs(exchange_traffic(problem, placement, layer), placement.num_ranks(),
              [&](RankId from, RankId to, double each) {
                const double cost = each / problem.topology.link(from, to).gigabytes_per_s;
                worst = std::max(worst, cost);
                total += cost;
              });
    objective += problem.pairs == PairObjective::worst_pair ? worst : total;
  }
  return objective;
}

double balance_objective(const PlacementProblem& problem, const Placement& placement) {
  require_fit(problem, placement);
  const CopyShares shares = shares_in(problem, placement);
  double objective = 0;
  for (LayerId layer : indices<LayerId>(placement.num_layers())) {
    const double mean = static_cast<double>(problem.profile.total_load(layer)) / placement.num_ranks();
    for (double load : rank_loads(problem.profile, placement, shares, layer))
      objective += std::abs(load - mean);
  }
  return objective;
}

double joint_objective_ms(const PlacementProblem& problem, const Placement& placement) {
  require_fit(problem, placement);
  const CopyShares shares = shares_in(problem, placement);
  double objective = 0;
  for (LayerId layer : indices<LayerId>(placement.num_layers())) {
    const std::vector<double> loads = rank_loads(problem.profile, placement, shares, layer);
    double slowest = 0;
    for (RankId rank : indices<RankId>(loads.size()))
      slowest = std::max(slowest, loads[rank.offset()] * computed_ms(problem.cost, problem.topology, rank));
    objective += slowest;
  }
  for (LayerId layer : indices<LayerId>(num_exchanges(problem))) {
    const RankTraffic traffic = exchange_traffic(problem, placement, layer);
    objective += exchange_ms(problem, traffic, /*back=*/false);
    if (problem.traffic == TrafficModel::dispatch_combine)
      objective += exchange_ms(problem, traffic, /*back=*/true);
  }
  return objective;
}

}  // namespace evenkeel
