#include "evenkeel/placement/internal/program/exchange.h"

#include <algorithm>
#include <utility>

#include "evenkeel/placement/internal/problem_check.h"
#include "evenkeel/placement/internal/program/program.h"

namespace evenkeel::internal {

namespace {

template <class F>
void for_pairs(std::size_t ranks, F f) {
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to)
      if (from != to) f(RankId(from), RankId(to), from * ranks + to);
}

PairCosts no_costs(const Topology& topology) {
  const auto ranks = static_cast<std::size_t>(topology.num_ranks());
  return {.num_ranks = ranks,
          .per_unit = std::vector<double>(ranks * ranks, 0.0),
          .fixed = std::vector<double>(ranks * ranks, 0.0)};
}

std::vector<Exchange> layer_to_layer(const RoutingProfile& profile) {
  const auto experts = static_cast<std::size_t>(profile.num_experts());
  std::vector<Exchange> exchanges;
  for (int layer = 0; layer + 1 < profile.num_layers(); ++layer) {
    const auto transitions = profile.transitions(LayerId(layer));
    exchanges.push_back({.to_layer = layer + 1,
                         .num_senders = experts,
                         .num_items = experts,
                         .amounts = {transitions.begin(), transitions.end()}});
  }
  return exchanges;
}

std::vector<Exchange> dispatch(const SourceCounts& sources) {
  const auto ranks = static_cast<std::size_t>(sources.num_ranks);
  const auto experts = static_cast<std::size_t>(sources.num_experts);
  std::vector<Exchange> exchanges;
  for (LayerId layer : indices<LayerId>(sources.num_layers)) {
    const auto begin = sources.counts.begin() + static_cast<std::ptrdiff_t>(layer.offset() * ranks * experts);
    for (bool back : {false, true})
      exchanges.push_back({.to_layer = layer.value(),
                           .from_layer_before = false,
                           .num_senders = ranks,
                           .num_items = experts,
                           .amounts = {begin, begin + static_cast<std::ptrdiff_t>(ranks * experts)},
                           .back = back});
  }
  return exchanges;
}

}  // namespace

PairCosts PairCosts::of_bandwidth(const Topology& topology, PairObjective objective) {
  PairCosts costs = no_costs(topology);
  costs.objective = objective;
  for_pairs(costs.num_ranks, [&](RankId from, RankId to, std::size_t at) {
    costs.per_unit[at] = 1 / topology.link(from, to).gigabytes_per_s;
  });
  return costs;
}

PairCosts PairCosts::of_time(const Topology& topology, const PlacementCost& cost) {
  PairCosts costs = no_costs(topology);
  for_pairs(costs.num_ranks, [&](RankId from, RankId to, std::size_t at) {
    costs.per_unit[at] = sent_ms(cost, topology.link(from, to));
    costs.fixed[at] = topology.link(from, to).latency_us * 1e-3;
  });
  return costs;
}

bool PairCosts::all_alike() const {
  bool alike = true;
  for_pairs(num_ranks, [&](RankId, RankId, std::size_t at) {
    alike = alike && per_unit[at] == per_unit[1] && fixed[at] == fixed[1];
  });
  return alike;
}

PairCosts PairCosts::cheapest() const {
  PairCosts cheap = *this;
  for (std::vector<double> PairCosts::*costs : {&PairCosts::per_unit, &PairCosts::fixed}) {
    double least = infinity;
    for_pairs(num_ranks,
              [&](RankId, RankId, std::size_t at) { least = std::min(least, (this->*costs)[at]); });
    for_pairs(num_ranks, [&](RankId, RankId, std::size_t at) { (cheap.*costs)[at] = least; });
  }
  return cheap;
}

double cost_of(const Exchange& exchange, const PairCosts& costs, const Ranks& before, const Ranks& here) {
  const std::size_t ranks = costs.num_ranks;
  std::vector<double> traffic(ranks * ranks, 0.0);
  for (std::size_t sender = 0; sender < exchange.num_senders; ++sender) {
    const std::size_t from = exchange.from_layer_before ? static_cast<std::size_t>(before[sender]) : sender;
    for (std::size_t item = 0; item < exchange.num_items; ++item)
      traffic[from * ranks + static_cast<std::size_t>(here[item])] += exchange.amount(sender, item);
  }
  double worst = 0;
  double total = 0;
  for_pairs(ranks, [&](RankId from, RankId to, std::size_t at) {
    const std::size_t link = exchange.back ? to.offset() * ranks + from.offset() : at;
    const double cost = costs.fixed[link] + costs.per_unit[link] * traffic[at];
    worst = std::max(worst, cost);
    total += cost;
  });
  return costs.objective == PairObjective::worst_pair ? worst : total;
}

std::vector<Exchange> expert_exchanges(const PlacementProblem& problem) {
  require_traffic(problem);
  return problem.traffic == TrafficModel::layer_to_layer ? layer_to_layer(problem.profile)
                                                         : dispatch(problem.sources);
}

}  // namespace evenkeel::internal
