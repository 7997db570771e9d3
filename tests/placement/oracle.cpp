#include "tests/placement/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace evenkeel {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

std::int64_t random_load(std::mt19937_64& random, int kind, int expert) {
  switch (kind) {
    case 0:
      return static_cast<std::int64_t>(random() % 4);  // ties and zeros
    case 1:
      return static_cast<std::int64_t>(random() % 1000);  // plain
    case 2:
      return std::llround(100 * std::exp(std::normal_distribution<>()(random)));  // skewed
    case 3:
      return expert == 0 ? 5000 : static_cast<std::int64_t>(random() % 50);  // one heavy expert
    case 4:
      return (std::int64_t{1} << 53) - static_cast<std::int64_t>(random() % 4096);
    case 5:
      return 60;
    default:
      return 0;
  }
}

// Calls f(homes) for all P^E homes of one layer.
template <class F>
void for_all_homes(int E, int P, F f) {
  std::vector<int> homes(at(E), 0);
  for (;;) {
    f(homes);
    std::size_t e = 0;
    while (e < homes.size() && ++homes[e] == P) homes[e++] = 0;
    if (e == homes.size()) return;
  }
}

int capacity(const SmallProblem& small, int rank) {
  return small.topology.capacity(RankId(rank)).value_or(small.profile.num_experts());
}

std::vector<int> sizes_of(const std::vector<int>& homes, int P) {
  std::vector<int> sizes(at(P), 0);
  for (int home : homes) ++sizes[at(home)];
  return sizes;
}

// False if sizes could be more even, that is, if a rank with free capacity has at least two experts fewer
// than another rank.
bool as_even_as_capacities_allow(const SmallProblem& small, const std::vector<int>& sizes, int layers) {
  for (int from = 0; from < static_cast<int>(sizes.size()); ++from)
    for (int to = 0; to < static_cast<int>(sizes.size()); ++to)
      if (sizes[at(from)] >= sizes[at(to)] + 2 && sizes[at(to)] < layers * capacity(small, to)) return false;
  return true;
}

std::string layer_fault(const SmallProblem& small, const std::vector<int>& homes) {
  const std::vector<int> sizes = sizes_of(homes, small.topology.num_ranks());
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] > capacity(small, static_cast<int>(rank))) return "a capacity is exceeded";
    if (small.sizes == ClusterSizes::free && sizes[rank] == 0) return "a rank has no expert";
  }
  if (small.sizes == ClusterSizes::equal && !as_even_as_capacities_allow(small, sizes, 1))
    return "sizes are not equal";
  return "";
}

double layer_balance(const SmallProblem& small, const std::vector<int>& homes, LayerId layer) {
  // Exact until the last division: sums of loads near 2^53 do not fit a double.
  const auto P = static_cast<long double>(small.topology.num_ranks());
  std::vector<long double> loads(at(small.topology.num_ranks()), 0);
  long double total = 0;
  for (std::size_t e = 0; e < homes.size(); ++e) {
    loads[at(homes[e])] += static_cast<long double>(small.profile.loads(layer)[e]);
    total += static_cast<long double>(small.profile.loads(layer)[e]);
  }
  long double sum = 0;
  for (long double load : loads) sum += std::abs(P * load - total);
  return static_cast<double>(sum / P);
}

int num_exchanges(const SmallProblem& small) {
  return small.profile.num_layers() - (small.traffic == TrafficModel::layer_to_layer ? 1 : 0);
}

// [P][P] traffic of an exchange.
std::vector<std::vector<double>> traffic_of(const SmallProblem& small, const Homes& homes, int exchange) {
  const int P = small.topology.num_ranks();
  const int E = small.profile.num_experts();
  std::vector<std::vector<double>> traffic(at(P), std::vector<double>(at(P), 0.0));
  if (small.traffic == TrafficModel::dispatch_combine) {
    for (int g = 0; g < P; ++g)
      for (int e = 0; e < E; ++e)
        traffic[at(g)][at(homes[at(exchange)][at(e)])] +=
            small.sources.at(LayerId(exchange), RankId(g), ExpertId(e));
    return traffic;
  }
  const auto counts = small.profile.transitions(LayerId(exchange));
  for (int a = 0; a < E; ++a)
    for (int b = 0; b < E; ++b)
      traffic[at(homes[at(exchange)][at(a)])][at(homes[at(exchange) + 1][at(b)])] +=
          static_cast<double>(counts[at(a * E + b)]);
  return traffic;
}

}  // namespace

Topology random_links(std::mt19937_64& random, int num_ranks) {
  Topology::Description description;
  const bool two_nodes = num_ranks > 1 && random() % 2 == 0;
  for (int rank = 0; rank < num_ranks; ++rank)
    description.node_of_rank.push_back(two_nodes && rank >= num_ranks / 2 ? 1 : 0);
  description.within = {4, static_cast<double>(random() % 3)};
  description.across = {1, static_cast<double>(random() % 9)};
  if (random() % 3 == 0)
    for (int pair = 0; pair < num_ranks * num_ranks; ++pair)
      description.links.push_back({static_cast<double>(1 + random() % 8), static_cast<double>(random() % 4)});
  if (random() % 3 == 0)
    for (int rank = 0; rank < num_ranks; ++rank)
      description.speeds.push_back(static_cast<double>(1 + random() % 3));
  return Topology(description);
}

SmallProblem random_problem(std::mt19937_64& random, SmallShape shape) {
  SmallProblem small;
  const auto E = at(shape.experts);
  std::vector<std::int64_t> loads;
  std::vector<std::int64_t> transitions;
  const int kind = static_cast<int>(random() % 7);
  for (int layer = 0; layer < shape.layers; ++layer)
    for (int e = 0; e < shape.experts; ++e) loads.push_back(random_load(random, kind, e));
  const std::uint64_t most = random() % 2 == 0 ? 4 : 100;
  for (std::size_t i = 0; i < at(shape.layers - 1) * E * E; ++i)
    transitions.push_back(static_cast<std::int64_t>(random() % most));
  small.profile = RoutingProfile(shape.layers, shape.experts, loads, transitions);
  small.topology = random() % 3 == 0 ? random_links(random, shape.ranks) : Topology::uniform(1, shape.ranks);
  small.pairs = random() % 2 == 0 ? PairObjective::worst_pair : PairObjective::total;
  if (random() % 3 == 0) {
    small.traffic = TrafficModel::dispatch_combine;
    small.sources = {.num_layers = shape.layers, .num_ranks = shape.ranks, .num_experts = shape.experts};
    for (std::size_t i = 0; i < at(shape.layers * shape.ranks) * E; ++i)
      small.sources.counts.push_back(static_cast<double>(random() % most));
  }
  small.cost = {.assignment_us = 1, .assignment_bytes = static_cast<double>(random() % 3) * 2000};
  return small;
}

void give_capacities(std::mt19937_64& random, SmallProblem& small) {
  Topology::Description description = small.topology.description();
  int capacity = 0;
  for (int rank = 0; rank < small.topology.num_ranks(); ++rank) {
    description.capacities.push_back(1 + static_cast<int>(random() % 4));
    capacity += description.capacities.back();
  }
  description.capacities.back() += std::max(0, small.profile.num_experts() - capacity);
  small.topology = Topology(description);
}

SmallProblem random_case(std::mt19937_64& random, const MostOf& most) {
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const int ranks = between(1, most.ranks);
  const int experts = between(ranks, most.experts);
  const SmallShape shape{between(1, most.layers), experts, ranks};
  SmallProblem small = random_problem(random, shape);
  // The programs use doubles, which cannot hold sums of loads near 2^53.
  while (std::ranges::max(small.profile.loads()) > (std::int64_t{1} << 50))
    small = random_problem(random, shape);
  small.sizes = between(0, 1) == 0 ? ClusterSizes::equal : ClusterSizes::free;
  if (between(0, 2) > 0) return small;
  Topology::Description description = small.topology.description();
  for (int rank = 0; rank < ranks; ++rank) description.capacities.push_back(between(1, experts));
  small.topology = Topology(description);
  return small;
}

std::string text_of(const SmallProblem& small) {
  return std::to_string(small.profile.num_layers()) + " layers, " +
         std::to_string(small.profile.num_experts()) + " experts, " +
         std::to_string(small.topology.num_ranks()) + " ranks, " +
         (small.sizes == ClusterSizes::equal ? "equal" : "free") +
         (small.traffic == TrafficModel::layer_to_layer ? ", layer to layer" : ", dispatch") +
         (small.pairs == PairObjective::worst_pair ? ", worst pair" : ", total");
}

double oracle_balance(const SmallProblem& small, const Homes& homes) {
  double sum = 0;
  for (std::size_t layer = 0; layer < homes.size(); ++layer)
    sum += layer_balance(small, homes[layer], LayerId(layer));
  return sum;
}

double oracle_pairs(const SmallProblem& small, const Homes& homes) {
  double sum = 0;
  const int P = small.topology.num_ranks();
  for (int exchange = 0; exchange < num_exchanges(small); ++exchange) {
    const auto traffic = traffic_of(small, homes, exchange);
    double worst = 0;
    double total = 0;
    for (int a = 0; a < P; ++a)
      for (int b = 0; b < P; ++b) {
        if (a == b) continue;
        const double cost = traffic[at(a)][at(b)] / small.topology.link(RankId(a), RankId(b)).gigabytes_per_s;
        worst = std::max(worst, cost);
        total += cost;
      }
    sum += small.pairs == PairObjective::worst_pair ? worst : total;
  }
  return sum;
}

double oracle_joint_ms(const SmallProblem& small, const Homes& homes) {
  const int P = small.topology.num_ranks();
  double sum = 0;
  for (std::size_t layer = 0; layer < homes.size(); ++layer) {
    double slowest = 0;
    for (int rank = 0; rank < P; ++rank) {
      double load = 0;
      for (std::size_t e = 0; e < homes[layer].size(); ++e)
        if (homes[layer][e] == rank) load += static_cast<double>(small.profile.loads(LayerId(layer))[e]);
      slowest = std::max(slowest, load / small.topology.speed(RankId(rank)));
    }
    sum += slowest * small.cost.assignment_us / 1000;
  }
  for (int exchange = 0; exchange < num_exchanges(small); ++exchange) {
    const auto traffic = traffic_of(small, homes, exchange);
    double out = 0;
    double back = 0;
    for (int a = 0; a < P; ++a)
      for (int b = 0; b < P; ++b) {
        if (a == b) continue;
        const double bytes = traffic[at(a)][at(b)] * small.cost.assignment_bytes;
        const Link there = small.topology.link(RankId(a), RankId(b));
        const Link home = small.topology.link(RankId(b), RankId(a));
        out = std::max(out, there.latency_us / 1000 + bytes / (there.gigabytes_per_s * 1e6));
        back = std::max(back, home.latency_us / 1000 + bytes / (home.gigabytes_per_s * 1e6));
      }
    sum += out + (small.traffic == TrafficModel::dispatch_combine ? back : 0);
  }
  return sum;
}

std::string oracle_fault(const SmallProblem& small, const Homes& homes) {
  const int P = small.topology.num_ranks();
  std::vector<int> totals(at(P), 0);
  for (const std::vector<int>& layer : homes) {
    if (layer.size() != at(small.profile.num_experts())) return "experts are missing";
    for (int home : layer)
      if (home < 0 || home >= P) return "a home does not exist";
    if (std::string fault = layer_fault(small, layer); !fault.empty()) return fault;
    for (int home : layer) ++totals[at(home)];
  }
  if (small.sizes == ClusterSizes::free &&
      !as_even_as_capacities_allow(small, totals, small.profile.num_layers()))
    return "totals over layers are not equal";
  return "";
}

double best_balance(const SmallProblem& small) {
  const int P = small.topology.num_ranks();
  std::map<std::vector<int>, double> least{{std::vector<int>(at(P), 0), 0.0}};  // by rank totals so far
  for (int layer = 0; layer < small.profile.num_layers(); ++layer) {
    std::map<std::vector<int>, double> of_sizes;
    for_all_homes(small.profile.num_experts(), P, [&](const std::vector<int>& homes) {
      if (!layer_fault(small, homes).empty()) return;
      const double cost = layer_balance(small, homes, LayerId(layer));
      const auto [entry, is_new] = of_sizes.emplace(sizes_of(homes, P), cost);
      if (!is_new) entry->second = std::min(entry->second, cost);
    });
    std::map<std::vector<int>, double> next;
    for (const auto& [totals, cost] : least)
      for (const auto& [sizes, more] : of_sizes) {
        std::vector<int> sums = totals;
        if (small.sizes == ClusterSizes::free)
          for (int rank = 0; rank < P; ++rank) sums[at(rank)] += sizes[at(rank)];
        const auto [entry, is_new] = next.emplace(sums, cost + more);
        if (!is_new) entry->second = std::min(entry->second, cost + more);
      }
    least = std::move(next);
  }
  double best = kNever;
  for (const auto& [totals, cost] : least)
    if (small.sizes == ClusterSizes::equal ||
        as_even_as_capacities_allow(small, totals, small.profile.num_layers()))
      best = std::min(best, cost);
  return best;
}

double best_pairs(const SmallProblem& small, const Homes& clusters) {
  const int P = small.topology.num_ranks();
  std::vector<std::vector<int>> ways;
  std::vector<int> ranks(at(P));
  std::iota(ranks.begin(), ranks.end(), 0);
  do ways.push_back(ranks);
  while (std::next_permutation(ranks.begin(), ranks.end()));
  double best = kNever;
  for_all_homes(small.profile.num_layers(), static_cast<int>(ways.size()),
                [&](const std::vector<int>& chosen) {
                  Homes homes = clusters;
                  for (std::size_t layer = 0; layer < homes.size(); ++layer)
                    for (int& home : homes[layer]) home = ways[at(chosen[layer])][at(home)];
                  if (oracle_fault(small, homes).empty()) best = std::min(best, oracle_pairs(small, homes));
                });
  return best;
}

double best_joint_ms(const SmallProblem& small) {
  const int E = small.profile.num_experts();
  const int L = small.profile.num_layers();
  double best = kNever;
  for_all_homes(L * E, small.topology.num_ranks(), [&](const std::vector<int>& flat) {
    Homes homes;
    for (int layer = 0; layer < L; ++layer)
      homes.emplace_back(flat.begin() + layer * E, flat.begin() + (layer + 1) * E);
    if (oracle_fault(small, homes).empty()) best = std::min(best, oracle_joint_ms(small, homes));
  });
  return best;
}

Homes homes_of(const Clustering& clustering, const RankAssignment& ranks) {
  Homes homes = clustering.cluster_of;
  for (std::size_t layer = 0; layer < homes.size(); ++layer)
    for (int& home : homes[layer]) home = ranks.rank_of[layer][at(home)];
  return homes;
}

void expect_best(const Claim& found, double best, double near) {
  EXPECT_NEAR(found.objective, best, near);
  EXPECT_NEAR(found.bound, best, near);
  EXPECT_TRUE(found.proven);
}

bool expect_enclosed(const Claim& found, double best, double near) {
  const bool is_best = found.objective <= best + near;
  EXPECT_GE(found.objective, best - near);
  EXPECT_LE(found.bound, best + near);
  EXPECT_TRUE(!found.proven || is_best);
  return is_best;
}

}  // namespace evenkeel
